//! What is known of a module besides its code; written into its artifact as a few bytes.

use crate::error::{Class, Error, Kind, Result};
use crate::options::{CompileOptions, OptLevel, Proposal, is_on};

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
    /// An artifact fits an engine when both count fuel or both do not, and when the engine has every
    /// proposal that the module was compiled with; Wasmtime checks the rest.
    pub fn must_fit(&self, options: &CompileOptions) -> Result<()> {
        if self.fuel != options.fuel {
            let (has, wants) = (with(self.fuel), with(options.fuel));
            let message = format!("the artifact was compiled {has} fuel, the options say {wants}");
            return Err(incompatible("fuel", message));
        }
        let misfit = |proposal: &&Proposal| {
            let (has, wants) = (is_on(&self.proposals, **proposal), options.has(**proposal));
            // This one changes what other instructions do.
            has != wants && (has || **proposal == Proposal::RelaxedSimdDeterministic)
        };
        match Proposal::ALL.iter().find(misfit) {
            None => Ok(()),
            Some(proposal) => {
                let (has, name) = (is_on(&self.proposals, *proposal), proposal.as_str());
                let message = format!(
                    "the artifact was compiled {} {name}: the option proposals must say {name} => {has}",
                    with(has)
                );
                Err(incompatible("proposals", message))
            }
        }
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

fn proposal([code, enable]: [u8; 2]) -> Result<(Proposal, bool)> {
    let proposal = Proposal::ALL.get(usize::from(code)).ok_or_else(damaged)?;
    Ok((*proposal, enable != 0))
}

fn with(has: bool) -> &'static str {
    if has { "with" } else { "without" }
}

/// The option that does not go with an artifact.
pub(super) fn incompatible(key: &'static str, message: impl Into<String>) -> Error {
    Error { key: Some(key), ..Error::new(Class::Compile, Kind::Incompatible, message) }
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
