//! Whether an export fits an import, by the rules of WebAssembly; and types as messages show them.
//! Rule: sizes are those of the moment, for a table or a memory may have grown since it was made.

use std::fmt::Write;
use std::iter::successors;

use wasmtime::{ExternType, FuncType, GlobalType, MemoryType, RefType, TableType, ValType};

/// True when what is of type `given` may serve an import of type `wanted`. The size of a memory or a
/// table is not looked at: see [`fits_size`].
pub(super) fn fits(wanted: &ExternType, given: &ExternType) -> bool {
    use ExternType::{Func, Global, Memory, Table, Tag};
    match (wanted, given) {
        (Func(wanted), Func(given)) => is_subtype(given, wanted),
        (Global(wanted), Global(given)) => global(wanted, given),
        (Table(wanted), Table(given)) => table(wanted, given),
        (Memory(wanted), Memory(given)) => memory(wanted, given),
        (Tag(wanted), Tag(given)) => FuncType::eq(wanted.ty(), given.ty()),
        _ => false,
    }
}

/// True when a memory or a table of `size` pages or elements is as large as the import wants.
pub(super) fn fits_size(wanted: &ExternType, size: u64) -> bool {
    match wanted {
        ExternType::Memory(wanted) => wanted.minimum() <= size,
        ExternType::Table(wanted) => wanted.minimum() <= size,
        ExternType::Func(_) | ExternType::Global(_) | ExternType::Tag(_) => true,
    }
}

/// A type of functions is a subtype of those that it declares.
fn is_subtype(given: &FuncType, wanted: &FuncType) -> bool {
    successors(Some(given.clone()), FuncType::supertype).any(|ty| FuncType::eq(&ty, wanted))
}

/// One that can change must be of the very type: both sides write to it.
fn global(wanted: &GlobalType, given: &GlobalType) -> bool {
    let both = wanted.mutability() == given.mutability();
    let same = ValType::eq(wanted.content(), given.content());
    both && (same || (wanted.mutability().is_const() && given.content().matches(wanted.content())))
}

fn table(wanted: &TableType, given: &TableType) -> bool {
    RefType::eq(wanted.element(), given.element())
        && wanted.is_64() == given.is_64()
        && is_bounded(wanted.maximum(), given.maximum())
}

fn memory(wanted: &MemoryType, given: &MemoryType) -> bool {
    wanted.is_shared() == given.is_shared()
        && wanted.is_64() == given.is_64()
        && wanted.page_size() == given.page_size()
        && is_bounded(wanted.maximum(), given.maximum())
}

fn is_bounded(wanted: Option<u64>, given: Option<u64>) -> bool {
    wanted.is_none_or(|most| given.is_some_and(|given| given <= most))
}

/// A type in a few words, as the text format writes it.
pub(super) fn describe(ty: &ExternType) -> String {
    match ty {
        ExternType::Func(ty) => function(ty),
        ExternType::Global(ty) if ty.mutability().is_const() => {
            format!("a global {}", ty.content())
        }
        ExternType::Global(ty) => format!("a global (mut {})", ty.content()),
        ExternType::Table(ty) => {
            let limits = limits(ty.is_64(), ty.minimum(), ty.maximum());
            format!("a table {limits} {}", ty.element())
        }
        ExternType::Memory(ty) => {
            let shared = if ty.is_shared() { " shared" } else { "" };
            let limits = limits(ty.is_64(), ty.minimum(), ty.maximum());
            let size = ty.page_size();
            let pages = if size == 65_536 { String::new() } else { format!(" (pagesize {size})") };
            format!("a memory {limits}{shared}{pages}")
        }
        ExternType::Tag(ty) => format!("a tag of {}", function(ty.ty())),
    }
}

fn function(ty: &FuncType) -> String {
    let mut text = String::from("a function");
    for (word, types) in
        [("param", ty.params().collect::<Vec<_>>()), ("result", ty.results().collect())]
    {
        if !types.is_empty() {
            let types: Vec<String> = types.iter().map(ValType::to_string).collect();
            // Writing to a string cannot fail.
            let _ = write!(text, " ({word} {})", types.join(" "));
        }
    }
    text
}

fn limits(is_64: bool, minimum: u64, maximum: Option<u64>) -> String {
    let wide = if is_64 { "i64 " } else { "" };
    let most = maximum.map_or(String::new(), |most| format!(" {most}"));
    format!("{wide}{minimum}{most}")
}
