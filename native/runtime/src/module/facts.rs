//! What is known of a module besides its code; written into its artifact as a few bytes.

use wasmparser::{
    Data, DataKind, Element, ElementItems, ElementKind, Parser, Payload, TableInit, TypeRef,
};

use crate::error::{Class, Error, Kind, Result};
use crate::options::{CompileOptions, OptLevel, Proposal};

/// Table elements and data bytes that an instantiation may write on a normal scheduler.
const BOUNDED_WORK: u64 = 256 * 1024;

/// What is known of a module besides its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub fuel: bool,
    pub opt_level: OptLevel,
    pub proposals: Vec<(Proposal, bool)>,
    /// Instantiation runs guest code.
    pub has_start: bool,
    /// Instantiation does more than a normal scheduler should wait for.
    pub heavy: bool,
}

impl Facts {
    /// The facts of a valid module that is compiled with `options`.
    pub fn of(wasm: &[u8], options: &CompileOptions) -> Result<Self> {
        let (mut has_start, mut work) = (false, Work::default());
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.map_err(|error| Error::internal(error.to_string()))? {
                Payload::StartSection { .. } => has_start = true,
                payload => work.count(payload),
            }
        }
        let CompileOptions { fuel, opt_level, proposals, .. } = options.clone();
        Ok(Facts { fuel, opt_level, proposals, has_start, heavy: work.amount > BOUNDED_WORK })
    }

    /// An artifact fits an engine when both count fuel or both do not; Wasmtime checks the rest.
    pub fn must_fit(&self, options: &CompileOptions) -> Result<()> {
        if self.fuel == options.fuel {
            return Ok(());
        }
        let (has, wants) = (with(self.fuel), with(options.fuel));
        let message = format!("the artifact was compiled {has} fuel, the options say {wants}");
        Err(Error { key: Some("fuel"), ..Error::new(Class::Compile, Kind::Incompatible, message) })
    }

    /// The bytes of an artifact's facts: flags, level, then two bytes for each proposal.
    pub fn encode(&self) -> Vec<u8> {
        let flags = u8::from(self.fuel) | u8::from(self.has_start) << 1 | u8::from(self.heavy) << 2;
        let mut bytes = vec![flags, self.opt_level as u8];
        for (proposal, enable) in &self.proposals {
            bytes.extend([*proposal as u8, u8::from(*enable)]);
        }
        bytes
    }

    /// The inverse of [`Facts::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let [flags @ 0..8, level, proposals @ ..] = bytes else { return Err(damaged()) };
        let opt_level = match level {
            0 => OptLevel::None,
            1 => OptLevel::Speed,
            2 => OptLevel::SpeedAndSize,
            _ => return Err(damaged()),
        };
        let (pairs, []) = proposals.as_chunks::<2>() else { return Err(damaged()) };
        let proposals = pairs.iter().map(|pair| proposal(*pair)).collect::<Result<_>>()?;
        let flag = |bit: u8| flags & bit != 0;
        Ok(Facts { fuel: flag(1), has_start: flag(2), heavy: flag(4), opt_level, proposals })
    }
}

/// What an instantiation writes, roughly in bytes.
#[derive(Default)]
struct Work {
    amount: u64,
    imported_memories: u32,
    imported_tables: u32,
}

impl Work {
    fn count(&mut self, payload: Payload<'_>) {
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports().flatten() {
                    match import.ty {
                        TypeRef::Memory(_) => self.imported_memories += 1,
                        TypeRef::Table(_) => self.imported_tables += 1,
                        _ => {}
                    }
                }
            }
            Payload::TableSection(tables) => tables.into_iter().flatten().for_each(|table| {
                let each = if matches!(table.init, TableInit::RefNull) { 1 } else { 16 };
                self.add(table.ty.initial.saturating_mul(each));
            }),
            Payload::ElementSection(segments) => {
                segments.into_iter().flatten().for_each(|segment| self.element(&segment));
            }
            Payload::DataSection(segments) => {
                segments.into_iter().flatten().for_each(|segment| self.data(&segment));
            }
            _ => {}
        }
    }

    /// A defined table was counted as it is; what goes into an imported one comes on top.
    fn element(&mut self, segment: &Element<'_>) {
        let ElementKind::Active { table_index, .. } = segment.kind else { return };
        if table_index.unwrap_or(0) < self.imported_tables {
            let items = match &segment.items {
                ElementItems::Functions(items) => items.count(),
                ElementItems::Expressions(_, items) => items.count(),
            };
            self.add(u64::from(items) * 16);
        }
    }

    /// Images take most of what goes into defined memories; the sum bounds what stays.
    fn data(&mut self, segment: &Data<'_>) {
        let DataKind::Active { memory_index, .. } = segment.kind else { return };
        let bytes = segment.data.len() as u64;
        self.add(if memory_index < self.imported_memories { bytes } else { bytes / 64 });
    }

    fn add(&mut self, amount: u64) {
        self.amount = self.amount.saturating_add(amount);
    }
}

fn proposal([code, enable]: [u8; 2]) -> Result<(Proposal, bool)> {
    let proposal = Proposal::ALL.get(usize::from(code)).ok_or_else(damaged)?;
    Ok((*proposal, enable != 0))
}

fn with(fuel: bool) -> &'static str {
    if fuel { "with" } else { "without" }
}

fn damaged() -> Error {
    let message = "the artifact's facts about its module are damaged";
    Error::new(Class::Compile, Kind::Corrupted, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written is what is read; a cut or unknown byte is an error.
    #[test]
    fn facts_survive_the_artifact() {
        let facts = Facts {
            fuel: true,
            opt_level: OptLevel::SpeedAndSize,
            proposals: vec![(Proposal::Simd, false), (Proposal::Exceptions, true)],
            has_start: true,
            heavy: false,
        };
        let bytes = facts.encode();
        assert_eq!(Facts::decode(&bytes).as_ref(), Ok(&facts));
        for bad in [&bytes[..1], &bytes[..bytes.len() - 1], &[0, 9], &[8, 0], &[0, 0, 99, 1]] {
            assert_eq!(Facts::decode(bad).map_err(|e| e.kind), Err(Kind::Corrupted));
        }
    }
}
