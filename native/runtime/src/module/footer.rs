//! The footer and the trailer of an artifact, byte by byte. Both directions stand side by side.
//! Rule: decoding checks every number against the file before anything is made of it.

use super::artifact::{ALIGNMENT, MemoryRecord, corrupted};
use crate::{Class, Error, Kind, Result};
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3;

/// Length of the trailer in bytes: offset, length, two checksums, version, magic.
pub(super) const TRAILER: usize = 8 * 4 + 4 + 8;

/// Ends every artifact.
const MAGIC: &[u8; 8] = b"WASMBEAM";

/// Version of the container's layout. The magic and it stay where they are in every version.
pub const VERSION: u32 = 1;

/// Bytes of one memory in the footer.
const RECORD: usize = 8 * 4 + 4 + 4;

const HAS_MAX: u32 = 1 << 0;
const IS64: u32 = 1 << 1;
const SHARED: u32 = 1 << 2;
const SLOTTED: u32 = 1 << 3;

/// What the footer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Footer {
    /// Length of the code in bytes.
    pub(super) code: u64,
    pub(super) memories: Vec<MemoryRecord>,
    pub(super) meta: Vec<u8>,
}

/// What the trailer says.
#[derive(Debug)]
pub(super) struct Trailer {
    /// Where the footer begins; it ends where the trailer begins.
    pub(super) offset: u64,
    len: u64,
    /// Checksum of all before the footer.
    body: u64,
    /// Checksum of the footer and of the trailer's other fields.
    footer: u64,
}

impl Trailer {
    pub(super) fn new(offset: u64, footer: &[u8], body: u64) -> Self {
        let mut trailer = Trailer { offset, len: footer.len() as u64, body, footer: 0 };
        trailer.footer = trailer.checksum(footer);
        trailer
    }

    fn checksum(&self, footer: &[u8]) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(footer);
        hash.update(&self.fields());
        hash.digest()
    }

    fn fields(&self) -> [u8; 24] {
        let mut fields = [0; 24];
        fields[..8].copy_from_slice(&self.offset.to_le_bytes());
        fields[8..16].copy_from_slice(&self.len.to_le_bytes());
        fields[16..].copy_from_slice(&self.body.to_le_bytes());
        fields
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TRAILER);
        out.extend_from_slice(&self.fields());
        out.extend_from_slice(&self.footer.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(MAGIC);
        out
    }

    /// `end` is where the trailer begins.
    pub(super) fn decode(bytes: &[u8], end: u64) -> Result<Self> {
        let mut input = Input(bytes);
        let (offset, len) = (input.u64()?, input.u64()?);
        let trailer = Trailer { offset, len, body: input.u64()?, footer: input.u64()? };
        let version = input.u32()?;
        if input.0 != MAGIC {
            return Err(corrupted("it does not end as one"));
        }
        if version != VERSION {
            let text = format!("artifact of container version {version}, not {VERSION}");
            return Err(Error::new(Class::Compile, Kind::Incompatible, text));
        }
        if offset.checked_add(len) != Some(end) {
            return Err(corrupted("its trailer points beside its footer"));
        }
        Ok(trailer)
    }

    pub(super) fn check_footer(&self, footer: &[u8]) -> Result<()> {
        match self.checksum(footer) == self.footer {
            true => Ok(()),
            false => Err(corrupted("the checksum of its footer does not hold")),
        }
    }

    pub(super) fn check_body(&self, checksum: u64) -> Result<()> {
        match checksum == self.body {
            true => Ok(()),
            false => Err(corrupted("the checksum of its code and images does not hold")),
        }
    }
}

impl Footer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.memories.len() * RECORD + self.meta.len());
        out.extend_from_slice(&self.code.to_le_bytes());
        out.extend_from_slice(&(self.memories.len() as u64).to_le_bytes());
        for memory in &self.memories {
            encode_record(memory, &mut out);
        }
        out.extend_from_slice(&(self.meta.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.meta);
        out
    }

    /// `end` is where the footer begins: code and images lie below.
    pub(super) fn decode(bytes: &[u8], end: u64) -> Result<Self> {
        let mut input = Input(bytes);
        let code = input.u64()?;
        let count = input.u64()?;
        if code > end || count > (bytes.len() / RECORD) as u64 {
            return Err(corrupted("its footer tells of more than there is"));
        }
        let mut memories = Vec::with_capacity(count as usize);
        let mut free = code;
        for _ in 0..count {
            let memory = decode_record(&mut input)?;
            check_image(&memory, free..end)?;
            free = memory.image.end;
            memories.push(memory);
        }
        let len = input.u64()?;
        if len != input.0.len() as u64 {
            return Err(corrupted("its footer is not as long as it says"));
        }
        Ok(Footer { code, memories, meta: input.0.to_vec() })
    }
}

fn encode_record(memory: &MemoryRecord, out: &mut Vec<u8>) {
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    let flags = flag(memory.max_bytes.is_some(), HAS_MAX)
        | flag(memory.is64, IS64)
        | flag(memory.shared, SHARED)
        | flag(memory.slotted, SLOTTED);
    out.extend_from_slice(&memory.min_bytes.to_le_bytes());
    out.extend_from_slice(&memory.max_bytes.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&memory.image.start.to_le_bytes());
    out.extend_from_slice(&memory.image.end.to_le_bytes());
    out.extend_from_slice(&memory.page_size_log2.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
}

fn decode_record(input: &mut Input<'_>) -> Result<MemoryRecord> {
    let (min_bytes, max) = (input.u64()?, input.u64()?);
    let image = input.u64()?..input.u64()?;
    let (page_size_log2, flags) = (input.u32()?, input.u32()?);
    if flags & !(HAS_MAX | IS64 | SHARED | SLOTTED) != 0 || page_size_log2 > 16 {
        return Err(corrupted("its footer tells of an unknown sort of memory"));
    }
    Ok(MemoryRecord {
        min_bytes,
        max_bytes: (flags & HAS_MAX != 0).then_some(max),
        page_size_log2,
        is64: flags & IS64 != 0,
        shared: flags & SHARED != 0,
        slotted: flags & SLOTTED != 0,
        image,
    })
}

/// An image lies behind what comes before it, on whole pages, within the file and the memory.
fn check_image(memory: &MemoryRecord, within: Range<u64>) -> Result<()> {
    let Range { start, end } = memory.image;
    let aligned = [start, end].iter().all(|at| at.is_multiple_of(ALIGNMENT as u64));
    if !aligned || start < within.start || end < start || end > within.end {
        return Err(corrupted("its image table points outside its pages"));
    }
    let len = end - start;
    let suits = len <= memory.min_bytes && memory.slotted && !memory.shared;
    if len > 0 && !(suits && memory.page_size_log2 == 16) {
        return Err(corrupted("an image does not suit its memory"));
    }
    if memory.slotted && memory.min_bytes > crate::memory::MEMORY_RESERVATION {
        return Err(corrupted("a memory does not fit its slot"));
    }
    Ok(())
}

/// Bytes yet to be decoded.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) =
            self.0.split_first_chunk().ok_or_else(|| corrupted("its footer is cut short"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }
}
