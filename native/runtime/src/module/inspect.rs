//! Imports and exports as data.

use wasmtime::{ExportType, ExternType, ImportType};

/// What an import or an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternKind {
    Func,
    Global,
    Table,
    Memory,
    Tag,
}

/// One import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub module: String,
    pub name: String,
    pub kind: ExternKind,
}

/// One export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub name: String,
    pub kind: ExternKind,
}

impl ExternKind {
    pub(crate) fn of(ty: &ExternType) -> Self {
        match ty {
            ExternType::Func(_) => ExternKind::Func,
            ExternType::Global(_) => ExternKind::Global,
            ExternType::Table(_) => ExternKind::Table,
            ExternType::Memory(_) => ExternKind::Memory,
            ExternType::Tag(_) => ExternKind::Tag,
        }
    }

    /// The name a user sees (an atom in Erlang).
    pub const fn as_str(self) -> &'static str {
        match self {
            ExternKind::Func => "func",
            ExternKind::Global => "global",
            ExternKind::Table => "table",
            ExternKind::Memory => "memory",
            ExternKind::Tag => "tag",
        }
    }
}

impl Import {
    pub(super) fn of(import: &ImportType<'_>) -> Self {
        let (module, name) = (import.module().to_owned(), import.name().to_owned());
        Import { module, name, kind: ExternKind::of(&import.ty()) }
    }
}

impl Export {
    pub(super) fn of(export: &ExportType<'_>) -> Self {
        Export { name: export.name().to_owned(), kind: ExternKind::of(&export.ty()) }
    }
}
