//! The seal behind an artifact, which says that somebody with the key made it. Rule: of what is
//! sealed nothing is believed, and nothing kept, before its tag holds; and what is used then is the
//! very bytes that the tag was computed of.
//!
//! ```text
//! artifact | length | tag of the length | version | magic | tag
//! ```
//! The last 32 bytes are the HMAC-SHA256 of all bytes before them. The length has a tag of its own,
//! so that a file which grew to a terabyte is refused before it is read. Every other message that a
//! key is used for ends in a label of its own, where here the magic stands.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::artifact::{CHUNK, corrupted, read_range, unreadable};
use crate::mac::{Key, TAG, same};
use crate::memory::{anonymous_file, seal_file};
use crate::{Class, Error, Kind, Result};

const MAGIC: &[u8; 8] = b"WASMSEAL";
const VERSION: u32 = 1;
const LENGTH_LABEL: &[u8] = b" wasmtime artifact length";

/// Bytes of a seal before its tag.
const HEAD: usize = 8 + TAG + 4 + MAGIC.len();

/// Bytes of a seal.
const SEAL: usize = HEAD + TAG;

/// A seal as it was read.
struct Seal {
    head: [u8; HEAD],
    tag: [u8; TAG],
}

/// Puts a seal behind an artifact.
pub(super) fn append(artifact: &mut Vec<u8>, key: &Key) {
    let head = head(artifact.len() as u64, key);
    let tag = key.tag(&[artifact, &head]);
    artifact.extend_from_slice(&head);
    artifact.extend_from_slice(&tag);
}

/// Whether these bytes are an artifact that was sealed with this key.
///
/// # Errors
/// Class `compile`, kind `untrusted`.
pub(super) fn check(bytes: &[u8], key: &Key) -> Result<()> {
    let read = |range: Range<u64>| {
        let range = range.start as usize..range.end as usize;
        bytes.get(range).map(<[u8]>::to_vec).ok_or_else(unsealed)
    };
    let (seal, len) = Seal::read(bytes.len() as u64, read, key)?;
    let artifact = bytes.get(..len as usize).ok_or_else(unsealed)?;
    seal.must_be(&key.tag(&[artifact, &seal.head]))
}

/// A copy of a sealed artifact's file that nobody else can reach: who writes to the file meanwhile
/// or later changes what was copied, and then the tag does not hold, or changes nothing.
///
/// # Errors
/// Class `compile`: `untrusted`, `file` when it cannot be read, `out_of_memory` for the copy.
pub(super) fn copy(file: &File, key: &Key) -> Result<File> {
    let size = file.metadata().map_err(unreadable)?.len();
    let (seal, len) = Seal::read(size, |range| read_range(file, range), key)?;
    let copy = anonymous_file().map_err(|error| refused(len, &error))?;
    let mut mac = key.begin();
    let mut chunk = vec![0; CHUNK.min(len as usize)];
    let mut at = 0;
    while at < len {
        let size = (len - at).min(CHUNK as u64) as usize;
        file.read_exact_at(&mut chunk[..size], at).map_err(unreadable)?;
        mac.update(&chunk[..size]);
        copy.write_all_at(&chunk[..size], at).map_err(|error| refused(len, &error))?;
        at += size as u64;
    }
    mac.update(&seal.head);
    seal.must_be(&mac.finish())?;
    let end = [seal.head.as_slice(), &seal.tag].concat();
    copy.write_all_at(&end, len).map_err(|error| refused(len, &error))?;
    seal_file(&copy);
    Ok(copy)
}

/// Bytes of the artifact among `len`, with or without a seal behind it. Nothing is believed of the
/// seal; the artifact's own checks are made as always.
///
/// # Errors
/// `corrupted` for a seal without an artifact, `incompatible` for one of another version.
pub(super) fn without(len: u64, read: impl Fn(Range<u64>) -> Result<Vec<u8>>) -> Result<u64> {
    let Some(end) = len.checked_sub(TAG as u64).filter(|end| *end >= HEAD as u64) else {
        return Ok(len);
    };
    let mark = read(end - 12..end)?;
    if mark[4..] != *MAGIC {
        return Ok(len);
    }
    if mark[..4] != VERSION.to_le_bytes() {
        let text = "an artifact with a seal of another version";
        return Err(Error::new(Class::Compile, Kind::Incompatible, text));
    }
    let rest = end - HEAD as u64;
    match read(rest..rest + 8)? == rest.to_le_bytes() {
        true => Ok(rest),
        false => Err(corrupted("its seal is of another length")),
    }
}

impl Seal {
    /// The seal of a file of `size` bytes, and the length of its artifact, which the key vouches for.
    fn read(
        size: u64,
        read: impl Fn(Range<u64>) -> Result<Vec<u8>>,
        key: &Key,
    ) -> Result<(Self, u64)> {
        let len = size.checked_sub(SEAL as u64).ok_or_else(unsealed)?;
        let bytes = read(len..size)?;
        let (head, tag) = bytes.split_first_chunk().ok_or_else(unsealed)?;
        let seal = Seal { head: *head, tag: tag.try_into().map_err(|_| unsealed())? };
        if !seal.head.ends_with(MAGIC) {
            return Err(unsealed());
        }
        match same(&seal.head, &self::head(len, key)) {
            true => Ok((seal, len)),
            false => Err(untrusted("it was not sealed with this key, or is of another length")),
        }
    }

    /// `expected` is the tag that the bytes should have.
    fn must_be(&self, expected: &[u8; TAG]) -> Result<()> {
        match same(&self.tag, expected) {
            true => Ok(()),
            false => Err(untrusted("its tag is not that of its bytes and this key")),
        }
    }
}

/// All of a seal but its tag.
fn head(len: u64, key: &Key) -> [u8; HEAD] {
    let len = len.to_le_bytes();
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&len);
    head[8..8 + TAG].copy_from_slice(&key.tag(&[&len, LENGTH_LABEL]));
    head[8 + TAG..HEAD - MAGIC.len()].copy_from_slice(&VERSION.to_le_bytes());
    head[HEAD - MAGIC.len()..].copy_from_slice(MAGIC);
    head
}

fn unsealed() -> Error {
    untrusted("it has no seal")
}

fn untrusted(what: &str) -> Error {
    Error::new(Class::Compile, Kind::Untrusted, format!("not a trusted artifact: {what}"))
}

fn refused(len: u64, error: &std::io::Error) -> Error {
    let text = format!("the system refused a copy of {len} bytes: {error}");
    Error::new(Class::Compile, Kind::OutOfMemory, text)
}
