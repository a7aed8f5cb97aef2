//! Takes the initial content of memories out of a module: one image instead of many segments.
//! Rule: whatever could be observed stays as it was, traps and the order of segments included.

use super::image::{Image, MemoryPlan};
use super::layout::{Layout, Segment};
use crate::Result;
use std::borrow::Cow;
use wasm_encoder::{Encode, Module, RawSection, SectionId};

/// Bytes of images that a module may have for nothing; more only when segments fill a quarter.
/// Bounds what a small module with one far segment can make us allocate.
const SPARSE: u64 = 16 << 20;

/// A module whose segments moved into images.
#[derive(Clone, Debug)]
pub struct Extracted<'a> {
    /// The module to compile; borrowed when nothing moved.
    pub wasm: Cow<'a, [u8]>,
    /// The defined memories, in order.
    pub memories: Vec<MemoryData>,
}

/// One defined memory and its initial content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryData {
    pub min_bytes: u64,
    /// The declared maximum; `None` when there is none.
    pub max_bytes: Option<u64>,
    pub page_size_log2: u32,
    pub is64: bool,
    pub shared: bool,
    /// False for a memory that cannot live in a slot; its segments stay in the module.
    pub slotted: bool,
    /// What the taken segments write, without the zeros at the end.
    pub content: Vec<u8>,
}

impl MemoryData {
    /// The plan of this memory, with its content as an image in memory.
    ///
    /// # Errors
    /// `out_of_memory` when the system refuses the image.
    pub fn plan(&self) -> Result<MemoryPlan> {
        let image = match self.content.is_empty() {
            true => None,
            false => Some(Image::from_bytes(&self.content)?),
        };
        Ok(MemoryPlan {
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            page_size_log2: self.page_size_log2,
            is64: self.is64,
            shared: self.shared,
            slotted: self.slotted,
            image,
        })
    }
}

/// Takes active segments with constant offsets out of a module that has been validated.
/// (Of a module that has not, a wrong segment could go unnoticed.)
///
/// # Errors
/// `malformed` when the module cannot be parsed.
pub fn extract(wasm: &[u8]) -> Result<Extracted<'_>> {
    let mut layout = Layout::parse(wasm)?;
    let taken = choose(&layout);
    apply(&mut layout, &taken);
    let wasm = match taken.contains(&true) {
        true => Cow::Owned(rebuild(wasm, &layout, &taken)),
        false => Cow::Borrowed(wasm),
    };
    Ok(Extracted { wasm, memories: layout.memories })
}

/// Which segments move into an image.
fn choose(layout: &Layout<'_>) -> Vec<bool> {
    let mut taken = vec![false; layout.segments.len()];
    // Functions that got out through an imported table outlive a failed instantiation, and see
    // how far it came.
    if layout.leaks {
        return taken;
    }
    let mut frozen = vec![false; layout.memories.len()];
    for (segment, taken) in layout.segments.iter().zip(&mut taken) {
        let Some(memory) = segment.memory.filter(|memory| layout.memories[*memory].slotted) else {
            continue;
        };
        match segment.end() {
            // It may overwrite what comes before and be overwritten by what comes after.
            None => frozen[memory] = true,
            Some(end) if end > layout.memories[memory].min_bytes => break,
            Some(_) => *taken = !frozen[memory],
        }
    }
    drop_sparse(layout, &mut taken);
    taken
}

/// Leaves the segments of memories whose images would be mostly holes.
fn drop_sparse(layout: &Layout<'_>, taken: &mut [bool]) {
    let filled: u64 = chosen(layout, taken).map(|(_, segment)| segment.data.len() as u64).sum();
    let mut room = SPARSE.max(filled.saturating_mul(4));
    for (memory, span) in spans(layout, taken).into_iter().enumerate() {
        if let Some(rest) = room.checked_sub(span) {
            room = rest;
            continue;
        }
        for (segment, taken) in layout.segments.iter().zip(taken.iter_mut()) {
            *taken &= segment.memory != Some(memory);
        }
    }
}

/// The taken segments, each with its memory.
fn chosen<'l, 'a>(
    layout: &'l Layout<'a>,
    taken: &'l [bool],
) -> impl Iterator<Item = (usize, &'l Segment<'a>)> {
    let segments = layout.segments.iter().zip(taken).filter(|(_, taken)| **taken);
    segments.filter_map(|(segment, _)| Some((segment.memory?, segment)))
}

/// Where the taken segments of each memory end.
fn spans(layout: &Layout<'_>, taken: &[bool]) -> Vec<u64> {
    let mut spans = vec![0; layout.memories.len()];
    for (memory, segment) in chosen(layout, taken) {
        spans[memory] = segment.end().unwrap_or(0).max(spans[memory]);
    }
    spans
}

/// Writes the taken segments to their memories' contents.
fn apply(layout: &mut Layout<'_>, taken: &[bool]) {
    let spans = spans(layout, taken);
    let mut contents: Vec<Vec<u8>> = spans.iter().map(|span| vec![0; *span as usize]).collect();
    for (memory, segment) in chosen(layout, taken) {
        if let (Some(offset), Some(end)) = (segment.offset, segment.end()) {
            contents[memory][offset as usize..end as usize].copy_from_slice(segment.data);
        }
    }
    for (memory, mut content) in layout.memories.iter_mut().zip(contents) {
        let zeros = content.iter().rev().take_while(|byte| **byte == 0).count();
        content.truncate(content.len() - zeros);
        memory.content = content;
    }
}

/// The module without the taken segments; every other section is as it was.
fn rebuild(wasm: &[u8], layout: &Layout<'_>, taken: &[bool]) -> Vec<u8> {
    let (count, segments) = remaining(wasm, layout, taken);
    let mut section = Vec::with_capacity(segments.len() + 5);
    count.encode(&mut section);
    section.extend_from_slice(&segments);
    let mut module = Module::new();
    for (id, range) in &layout.sections {
        let data = match SectionId::Data as u8 == *id {
            true if count == 0 => continue,
            true => &section[..],
            false => &wasm[range.clone()],
        };
        if *id != SectionId::DataCount as u8 {
            module.section(&RawSection { id: *id, data });
        } else if layout.used.is_some() {
            module.section(&wasm_encoder::DataCountSection { count });
        }
    }
    module.finish()
}

/// Number and bytes of the segments that stay, with an empty passive one wherever code refers to
/// that index or a later one: a dropped segment behaves as an empty one.
fn remaining(wasm: &[u8], layout: &Layout<'_>, taken: &[bool]) -> (u32, Vec<u8>) {
    const EMPTY_PASSIVE: [u8; 2] = [1, 0];
    let (mut count, mut bytes) = (0, Vec::new());
    for (index, segment) in layout.segments.iter().enumerate() {
        if !taken[index] {
            bytes.extend_from_slice(&wasm[segment.range.clone()]);
        } else if layout.used.is_some_and(|last| index <= last as usize) {
            bytes.extend_from_slice(&EMPTY_PASSIVE);
        } else {
            continue;
        }
        count += 1;
    }
    (count, bytes)
}
