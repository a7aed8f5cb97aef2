//! Terms in Erlang's external format. Rule: what is written here, `binary_to_term/1` reads.

/// A term, as far as scripts need any.
pub enum Term {
    Atom(&'static str),
    Integer(i128),
    Binary(Vec<u8>),
    List(Vec<Term>),
    Tuple(Vec<Term>),
}

const VERSION: u8 = 131;
const SMALL_INTEGER: u8 = 97;
const SMALL_TUPLE: u8 = 104;
const NIL: u8 = 106;
const LIST: u8 = 108;
const BINARY: u8 = 109;
const SMALL_BIG: u8 = 110;
const SMALL_ATOM_UTF8: u8 = 119;

impl Term {
    /// The term as a whole message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Term::Atom(name) => {
                out.extend([SMALL_ATOM_UTF8, name.len() as u8]);
                out.extend(name.as_bytes());
            }
            Term::Integer(value) => integer(*value, out),
            Term::Binary(bytes) => {
                out.push(BINARY);
                out.extend(length(bytes.len()));
                out.extend(bytes);
            }
            Term::List(items) => {
                if !items.is_empty() {
                    out.push(LIST);
                    out.extend(length(items.len()));
                    items.iter().for_each(|item| item.write(out));
                }
                out.push(NIL);
            }
            Term::Tuple(items) => {
                out.extend([SMALL_TUPLE, items.len() as u8]);
                items.iter().for_each(|item| item.write(out));
            }
        }
    }
}

fn integer(value: i128, out: &mut Vec<u8>) {
    if let Ok(small) = u8::try_from(value) {
        out.extend([SMALL_INTEGER, small]);
    } else {
        out.extend([SMALL_BIG, 16, u8::from(value < 0)]);
        out.extend(value.unsigned_abs().to_le_bytes());
    }
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("no script is that large").to_be_bytes()
}

/// `{Tag, Items...}`.
pub fn tagged(tag: &'static str, items: impl IntoIterator<Item = Term>) -> Term {
    Term::Tuple(std::iter::once(Term::Atom(tag)).chain(items).collect())
}

impl From<&str> for Term {
    fn from(text: &str) -> Self {
        Term::Binary(text.as_bytes().to_vec())
    }
}

impl From<usize> for Term {
    fn from(value: usize) -> Self {
        Term::Integer(value as i128)
    }
}
