//! The one-file container: compiled code, the memories' images on pages of their own, a footer that
//! says where they are, and a fixed trailer. Rule: no byte is believed before its checksum holds,
//! and no number before its range does; a bad file is an error, never a crash.
//!
//! ```text
//! code | zeros to a page | image | image | ... | footer | trailer | seal, if there is a key
//! ```
//! Compiled code comes first because Wasmtime loads a file that has more behind it.

use super::footer::{Footer, TRAILER, Trailer};
use super::seal;
use crate::memory::{Image, MemoryPlan};
use crate::options::Check;
use crate::{Class, Error, Kind, Result};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Version of the layout.
pub use super::footer::VERSION as CONTAINER_VERSION;

/// Images begin and end on multiples of this many bytes: the largest page of any host that can run
/// the code.
pub const ALIGNMENT: usize = if cfg!(target_arch = "x86_64") { 4096 } else { 65536 };

/// Bytes of a footer, at most: it holds names, and is read before anything of it is believed.
const MAX_FOOTER: u64 = 256 << 20;

/// Bytes read at a time to compute the checksum of a file.
pub(super) const CHUNK: usize = 1 << 20;

/// One defined memory, as the footer tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRecord {
    pub min_bytes: u64,
    pub max_bytes: Option<u64>,
    pub page_size_log2: u32,
    pub is64: bool,
    pub shared: bool,
    pub slotted: bool,
    /// Where its image lies in the file; empty when there is none.
    pub image: Range<u64>,
}

/// What an artifact holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Where the compiled module lies in the file.
    pub code: Range<usize>,
    pub memories: Vec<MemoryRecord>,
    /// The bytes that `write` was given as `meta`.
    pub meta: Vec<u8>,
}

impl MemoryRecord {
    fn plan(&self, image: Option<Arc<Image>>) -> MemoryPlan {
        MemoryPlan {
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            page_size_log2: self.page_size_log2,
            is64: self.is64,
            shared: self.shared,
            slotted: self.slotted,
            image,
        }
    }

    fn has_image(&self) -> bool {
        !self.image.is_empty()
    }
}

impl Contents {
    /// The memories, with images copied out of the artifact's bytes.
    ///
    /// # Errors
    /// `out_of_memory` when the system refuses an image.
    pub fn plans(&self, artifact: &[u8]) -> Result<Vec<MemoryPlan>> {
        let plan = |record: &MemoryRecord| {
            let bytes = artifact.get(record.image.start as usize..record.image.end as usize);
            let image = bytes.filter(|_| record.has_image()).map(Image::from_bytes);
            Ok(record.plan(image.transpose()?))
        };
        self.memories.iter().map(plan).collect()
    }

    /// The memories, with images mapped from the artifact's file. Nothing is read.
    ///
    /// # Errors
    /// As for [`Image::from_file`].
    pub fn plans_from(&self, file: &Arc<File>) -> Result<Vec<MemoryPlan>> {
        let map = |image: &Range<u64>| {
            Image::from_file(file.clone(), image.start, image.end - image.start)
        };
        let plan = |record: &MemoryRecord| {
            let image = record.has_image().then(|| map(&record.image));
            Ok(record.plan(image.transpose()?))
        };
        self.memories.iter().map(plan).collect()
    }
}

/// Puts compiled code, the memories with their images, and `meta` (opaque; covered by the footer's
/// checksum) into one artifact.
pub fn write(code: &[u8], memories: &[MemoryPlan], meta: &[u8]) -> Vec<u8> {
    let images = memories.iter().map(|plan| plan.image.as_ref().map_or(0, |image| image.len()));
    let size = code.len() + images.sum::<usize>() + meta.len() + (memories.len() + 2) * ALIGNMENT;
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(code);
    pad(&mut out);
    let mut records = Vec::with_capacity(memories.len());
    for plan in memories {
        let start = out.len() as u64;
        out.extend_from_slice(plan.image.as_ref().map_or(&[], |image| image.bytes()));
        pad(&mut out);
        records.push(record(plan, start..out.len() as u64));
    }
    let footer = Footer { code: code.len() as u64, memories: records, meta: meta.to_vec() };
    let footer = footer.encode();
    let (offset, body) = (out.len() as u64, xxhash_rust::xxh3::xxh3_64(&out));
    out.extend_from_slice(&footer);
    out.extend_from_slice(&Trailer::new(offset, &footer, body).encode());
    out
}

/// Reads an artifact from memory.
///
/// # Errors
/// `corrupted` when anything is wrong with it, `incompatible` for another container version.
pub fn parse(bytes: &[u8], check: Check) -> Result<Contents> {
    let read = |range: Range<u64>| {
        let range = range.start as usize..range.end as usize;
        bytes.get(range).map(<[u8]>::to_vec).ok_or_else(|| corrupted("it is cut short"))
    };
    let (trailer, contents) = open(bytes.len() as u64, read)?;
    if check == Check::Full {
        trailer.check_body(xxhash_rust::xxh3::xxh3_64(&bytes[..trailer.offset as usize]))?;
    }
    Ok(contents)
}

/// Reads an artifact's trailer and footer from its file, and the rest only for `Check::Full`.
///
/// # Errors
/// As for [`parse`]; `file` when the file cannot be read.
pub fn parse_file(file: &File, check: Check) -> Result<Contents> {
    let len = file.metadata().map_err(unreadable)?.len();
    let (trailer, contents) = open(len, |range| read_range(file, range))?;
    if check == Check::Full {
        trailer.check_body(hash_file(file, trailer.offset)?)?;
    }
    Ok(contents)
}

fn open(len: u64, read: impl Fn(Range<u64>) -> Result<Vec<u8>>) -> Result<(Trailer, Contents)> {
    let len = seal::without(len, &read)?;
    let Some(end) = len.checked_sub(TRAILER as u64) else {
        let text = format!("{len} bytes are fewer than the {TRAILER} of its trailer");
        return Err(corrupted(&text));
    };
    let trailer = match Trailer::decode(&read(end..len)?, end) {
        Err(error) if error.kind == Kind::Corrupted => return Err(hint(error, read(0..4)?)),
        trailer => trailer?,
    };
    if end - trailer.offset > MAX_FOOTER {
        return Err(corrupted(&format!("a footer of {} bytes", end - trailer.offset)));
    }
    let footer = read(trailer.offset..end)?;
    trailer.check_footer(&footer)?;
    let footer = Footer::decode(&footer, trailer.offset)?;
    let contents =
        Contents { code: 0..footer.code as usize, memories: footer.memories, meta: footer.meta };
    Ok((trailer, contents))
}

/// A file that is not an artifact at all is often the module itself.
fn hint(error: Error, start: Vec<u8>) -> Error {
    if start != b"\0asm" {
        return error;
    }
    corrupted("it is WebAssembly, which must be compiled")
}

fn record(plan: &MemoryPlan, image: Range<u64>) -> MemoryRecord {
    MemoryRecord {
        min_bytes: plan.min_bytes,
        max_bytes: plan.max_bytes,
        page_size_log2: plan.page_size_log2,
        is64: plan.is64,
        shared: plan.shared,
        slotted: plan.slotted,
        image,
    }
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}

pub(super) fn read_range(file: &File, range: Range<u64>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).map_err(unreadable)?;
    Ok(bytes)
}

fn hash_file(file: &File, len: u64) -> Result<u64> {
    let (mut hash, mut at) = (Xxh3::new(), 0);
    let mut chunk = vec![0; CHUNK.min(len as usize)];
    while at < len {
        let size = (len - at).min(CHUNK as u64) as usize;
        file.read_exact_at(&mut chunk[..size], at).map_err(unreadable)?;
        hash.update(&chunk[..size]);
        at += size as u64;
    }
    Ok(hash.digest())
}

pub(super) fn corrupted(what: &str) -> Error {
    Error::new(Class::Compile, Kind::Corrupted, format!("not a usable artifact: {what}"))
}

pub(super) fn unreadable(error: std::io::Error) -> Error {
    Error::new(Class::Compile, Kind::File, format!("artifact: {error}"))
}
