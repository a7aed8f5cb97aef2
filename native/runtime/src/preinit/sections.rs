//! A module as a list of raw sections, and the way back.
//! Nothing here knows what a section means, save its place in the order of a module.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use wasm_encoder::{Encode, Module, RawSection, SectionId};
use wasmparser::{BinaryReader, Parser};

/// What becomes of sections, by id: a new body (in place of an old one, or in its place in the
/// order), or none. Sections that are not named stay as they are.
pub(super) type Changes = BTreeMap<u8, Option<Vec<u8>>>;

/// The order of sections in a module; custom sections (0) have no place of their own.
const ORDER: [SectionId; 13] = [
    SectionId::Type,
    SectionId::Import,
    SectionId::Function,
    SectionId::Table,
    SectionId::Memory,
    SectionId::Tag,
    SectionId::Global,
    SectionId::Export,
    SectionId::Start,
    SectionId::Element,
    SectionId::DataCount,
    SectionId::Code,
    SectionId::Data,
];

/// The sections of a valid module, in their order.
pub(super) fn split(wasm: &[u8]) -> Result<Vec<RawSection<'_>>> {
    let mut sections = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        if let Some((id, range)) = payload.map_err(unreadable)?.as_section() {
            sections.push(RawSection { id, data: &wasm[range] });
        }
    }
    Ok(sections)
}

/// The body of the section `id`.
pub(super) fn find<'a>(sections: &[RawSection<'a>], id: SectionId) -> Option<&'a [u8]> {
    sections.iter().find(|s| s.id == u8::from(id)).map(|s| s.data)
}

/// A reader of a section's body.
pub(super) fn reader(body: &[u8]) -> BinaryReader<'_> {
    BinaryReader::new(body, 0)
}

/// An error of the parser after the module was found valid.
pub(super) fn unreadable(error: wasmparser::Error) -> Error {
    Error::internal(format!("a valid module could not be read: {error}"))
}

/// The module with its changes applied.
pub(super) fn assemble(sections: &[RawSection<'_>], changes: &Changes) -> Vec<u8> {
    let mut added = added(sections, changes).into_iter().peekable();
    let last = sections.iter().rposition(|s| s.id != 0);
    let mut module = Module::new();
    for (index, section) in sections.iter().enumerate() {
        let here = place(section.id).unwrap_or(0);
        while let Some((_, new)) = added.next_if(|(place, _)| *place < here) {
            module.section(&new);
        }
        match changes.get(&section.id) {
            None => _ = module.section(section),
            Some(Some(body)) => _ = module.section(&RawSection { id: section.id, data: body }),
            Some(None) => {}
        }
        // Custom sections at the end (names among them) are expected to stay last.
        if Some(index) == last {
            added.by_ref().for_each(|(_, new)| _ = module.section(&new));
        }
    }
    added.for_each(|(_, new)| _ = module.section(&new));
    module.finish()
}

/// New sections that the module does not have yet, in order, each with its place.
fn added<'a>(sections: &[RawSection<'_>], changes: &'a Changes) -> Vec<(usize, RawSection<'a>)> {
    let mut added: Vec<_> = changes
        .iter()
        .filter(|(id, _)| !sections.iter().any(|s| s.id == **id))
        .filter_map(|(id, body)| Some((place(*id)?, RawSection { id: *id, data: body.as_ref()? })))
        .collect();
    added.sort_by_key(|(place, _)| *place);
    added
}

fn place(id: u8) -> Option<usize> {
    ORDER.iter().position(|section| u8::from(*section) == id)
}

/// A section's body taken as what most of them are: a count, then as many items.
#[derive(Default)]
pub(super) struct Items {
    pub count: u32,
    bytes: Vec<u8>,
}

impl Items {
    /// The items of a body; none when the module lacks the section.
    pub fn of(body: Option<&[u8]>) -> Result<Self> {
        let Some(body) = body else { return Ok(Items::default()) };
        let mut reader = reader(body);
        let count = reader.read_var_u32().map_err(unreadable)?;
        Ok(Items { count, bytes: body[reader.current_position()..].to_vec() })
    }

    /// Appends one item, given as its bytes.
    pub fn push(&mut self, item: &[u8]) {
        self.count += 1;
        self.bytes.extend_from_slice(item);
    }

    /// Appends the items of an encoded section (its size, its count, its items).
    pub fn append(&mut self, section: &(impl Encode + ?Sized)) -> Result<()> {
        let mut encoded = Vec::new();
        section.encode(&mut encoded);
        let mut reader = reader(&encoded);
        reader.read_var_u32().map_err(unreadable)?;
        self.count += reader.read_var_u32().map_err(unreadable)?;
        self.bytes.extend_from_slice(&encoded[reader.current_position()..]);
        Ok(())
    }

    /// The body again.
    pub fn body(self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.bytes.len() + 5);
        self.count.encode(&mut body);
        body.extend_from_slice(&self.bytes);
        body
    }
}
