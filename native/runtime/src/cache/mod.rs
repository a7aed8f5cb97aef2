//! A directory of artifacts that were made once, shared by processes and nodes.
//!
//! - [`Entry`]: what an artifact is called there, by everything that went into it.
//! - [`prepare`], [`store`]: the directory, and a file that is there whole or not at all.
//! - [`Lock`]: one maker at a time; whoever dies lets go of it.
//! - `target`: what an artifact depends on besides its module and options.
//!
//! Absent here: whether an entry is good. Loading it tells.

mod dir;
mod lock;
mod target;

pub use dir::{prepare, store};
pub use lock::Lock;
pub use target::target;

use sha2::{Digest, Sha256};

use crate::mac::{Key, TAG};

/// Ends the message that a name is the tag of; and the one that an entry's key is.
const NAME_LABEL: &[u8] = b" wasmtime cached name";
const KEY_LABEL: &[u8] = b" wasmtime cached key";

/// An artifact in a cache.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// 64 hexadecimal digits.
    pub name: String,
    /// The key of this entry alone: no other's file is good in its place.
    pub key: Option<[u8; TAG]>,
}

impl Entry {
    /// The entry of what `parts` say, for this target. With a key both name and key follow from it,
    /// so that who has another key has other entries.
    pub fn new(parts: &[&[u8]], key: Option<&Key>) -> Self {
        let target = target();
        let mut hash = Sha256::new();
        for part in std::iter::once(&target.as_bytes()).chain(parts) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let digest: [u8; TAG] = hash.finalize().into();
        match key {
            None => Entry { name: hex(&digest), key: None },
            Some(key) => Entry {
                name: hex(&key.tag(&[&digest, NAME_LABEL])),
                key: Some(key.tag(&[&digest, KEY_LABEL])),
            },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same parts give the same entry; parts are not run together; a key makes another one.
    #[test]
    fn entries_are_told_apart() {
        let plain = |parts: &[&[u8]]| Entry::new(parts, None);
        assert_eq!(plain(&[b"ab", b"c"]), plain(&[b"ab", b"c"]));
        assert_ne!(plain(&[b"ab", b"c"]), plain(&[b"a", b"bc"]));
        assert_ne!(plain(&[b"ab"]), plain(&[b"ab", b""]));
        let (one, two) = (Key::new(b"one"), Key::new(b"two"));
        let sealed = Entry::new(&[b"a"], Some(&one));
        let others =
            [plain(&[b"a"]), Entry::new(&[b"a"], Some(&two)), Entry::new(&[b"b"], Some(&one))];
        for other in others {
            assert_ne!(sealed.name, other.name);
            assert_ne!(sealed.key, other.key);
        }
        assert_eq!(sealed.name.len(), 64);
    }
}
