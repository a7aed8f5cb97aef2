//! Names of exports that users ask for. Rule: a name that no module can have costs no time.

use rustler::{Binary, Decoder, Error, NifResult, Term};

/// Bytes of a name in a module, at most, by the limit that all engines share.
const LONGEST: usize = 100_000;

/// A name. Of a longer one than a module may have there is the beginning, which is still too long:
/// it is looked up in vain, like any unknown name.
#[derive(Clone, Copy)]
pub struct Name<'a>(pub &'a str);

impl<'a> Decoder<'a> for Name<'a> {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        let bytes = term.decode::<Binary<'a>>()?.as_slice();
        // A character has up to four bytes, and may be cut.
        let bytes = &bytes[..bytes.len().min(LONGEST + 4)];
        match std::str::from_utf8(bytes) {
            Ok(name) => Ok(Name(name)),
            Err(error) if error.error_len().is_none() && error.valid_up_to() > LONGEST => {
                let (whole, _) = bytes.split_at(error.valid_up_to());
                std::str::from_utf8(whole).map(Name).map_err(|_| Error::BadArg)
            }
            Err(_) => Err(Error::BadArg),
        }
    }
}
