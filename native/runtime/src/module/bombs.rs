//! Code that is valid, and that the compiler would spend an unreasonable time on. Rule: what is refused
//! here costs more than its length says.

use wasmparser::{Operator, Parser, Payload};

use crate::error::{Class, Error, Kind, Result};

/// Loops inside one another, at most. The compiler's time grows with the square of their number: ten
/// thousand, in 30 KB, take it half a minute. Blocks cost no more than their length.
const MAX_NESTED_LOOPS: usize = 256;

/// Refuses such code in a valid module.
///
/// # Errors
/// Class `compile`, kind `unsupported`.
pub(super) fn refuse(wasm: &[u8]) -> Result<()> {
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::CodeSectionEntry(body) = payload.map_err(|error| internal(&error))? {
            let code = body.get_operators_reader().map_err(|error| internal(&error))?;
            if nested_loops(code.into_iter().flatten()) > MAX_NESTED_LOOPS {
                let message = format!("more than {MAX_NESTED_LOOPS} loops are inside one another");
                return Err(Error::new(Class::Compile, Kind::Unsupported, message));
            }
        }
    }
    Ok(())
}

/// How many loops are inside one another, at most.
fn nested_loops<'a>(code: impl Iterator<Item = Operator<'a>>) -> usize {
    let (mut open, mut loops, mut most) = (Vec::new(), 0, 0);
    for operator in code {
        match operator {
            Operator::Loop { .. } => {
                open.push(1);
                loops += 1;
                most = most.max(loops);
            }
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                open.push(0);
            }
            // The last one ends the function itself.
            Operator::End => loops -= open.pop().unwrap_or(0),
            _ => {}
        }
    }
    most
}

/// The module was validated before.
fn internal(error: &wasmparser::BinaryReaderError) -> Error {
    Error::internal(error.to_string())
}
