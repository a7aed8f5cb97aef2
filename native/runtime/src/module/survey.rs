//! The facts of a module, from its bytes: how much work an instantiation is.

use wasmparser::{
    ConstExpr, Data, DataKind, Element, ElementItems, ElementKind, Operator, Parser, Payload,
    TableInit, TypeRef,
};

use super::Facts;
use crate::error::{Error, Result};
use crate::options::CompileOptions;

/// Work of an instantiation that a normal scheduler may wait for: an element of a table is 1, about
/// 4 ns.
const BOUNDED_WORK: u64 = 256 * 1024;

/// What a global, or a segment beside its contents, costs.
const EACH: u64 = 16;

/// What an import costs: it is looked up by its names.
const EACH_IMPORT: u64 = 128;

/// What an object in a constant costs, beside its elements: the first of all makes the heap.
const EACH_OBJECT: u64 = 64;

/// Where a table's elements must end for Wasmtime to lay them out beforehand.
const FOLDED: u64 = 1 << 20;

/// What costs nobody knows how much.
const UNKNOWN: u64 = BOUNDED_WORK + 1;

impl Facts {
    /// The facts of a valid module that is compiled with `options`, without the segments that are in
    /// images of its memories.
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
}

/// What an instantiation computes and writes.
#[derive(Default)]
struct Work {
    amount: u64,
    imported_tables: u32,
    /// A segment of elements was met that Wasmtime does not lay out beforehand: those after it are
    /// not, either.
    unfolded: bool,
}

impl Work {
    fn count(&mut self, payload: Payload<'_>) {
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports().flatten() {
                    self.add(EACH_IMPORT);
                    self.imported_tables += u32::from(matches!(import.ty, TypeRef::Table(_)));
                }
            }
            Payload::TableSection(tables) => tables.into_iter().flatten().for_each(|table| {
                let mut each = 1;
                if let TableInit::Expr(init) = &table.init {
                    each = 16;
                    self.constant(init);
                }
                self.add(table.ty.initial.saturating_mul(each));
            }),
            Payload::GlobalSection(globals) => globals.into_iter().flatten().for_each(|global| {
                self.add(EACH);
                self.constant(&global.init_expr);
            }),
            Payload::ElementSection(segments) => {
                segments.into_iter().flatten().for_each(|segment| self.element(segment));
            }
            Payload::DataSection(segments) => {
                segments.into_iter().flatten().for_each(|segment| self.data(&segment));
            }
            _ => {}
        }
    }

    /// A defined table was counted as it is, and functions at a constant place in it are filled in later
    /// at little cost; everything else is computed and written at once, also for a passive segment.
    fn element(&mut self, segment: Element<'_>) {
        let count = match &segment.items {
            ElementItems::Functions(items) => items.count(),
            ElementItems::Expressions(_, items) => items.count(),
        };
        let folded = match &segment.kind {
            ElementKind::Declared => return,
            ElementKind::Passive => false,
            ElementKind::Active { table_index, offset_expr } => {
                self.constant(offset_expr);
                let end = literal(offset_expr).map(|offset| offset.saturating_add(count.into()));
                self.unfolded |= table_index.unwrap_or(0) < self.imported_tables;
                self.unfolded |= end.is_none_or(|end| end > FOLDED);
                self.unfolded |= matches!(segment.items, ElementItems::Expressions(..));
                !self.unfolded
            }
        };
        self.add(EACH + u64::from(count) * if folded { 2 } else { 16 });
        if let ElementItems::Expressions(_, items) = segment.items {
            items.into_iter().flatten().for_each(|item| self.constant(&item));
        }
    }

    /// What is in an image is not here any more: the rest is copied.
    fn data(&mut self, segment: &Data<'_>) {
        self.add(EACH);
        if let DataKind::Active { offset_expr, .. } = &segment.kind {
            self.constant(offset_expr);
            self.add(segment.data.len() as u64);
        }
    }

    /// Each instruction, and the elements of arrays whose length stands right there.
    fn constant(&mut self, expr: &ConstExpr<'_>) {
        let mut literal = None;
        for operator in expr.get_operators_reader().into_iter().flatten() {
            self.add(match operator {
                Operator::ArrayNew { .. } | Operator::ArrayNewDefault { .. } => {
                    literal.map_or(UNKNOWN, |length| EACH_OBJECT + length)
                }
                // The type says how many fields it has.
                Operator::StructNewDefault { .. } => UNKNOWN,
                Operator::StructNew { .. } | Operator::ArrayNewFixed { .. } => EACH_OBJECT,
                _ => 1,
            });
            literal = match operator {
                Operator::I32Const { value } => Some(u64::from(value as u32)),
                _ => None,
            };
        }
    }

    fn add(&mut self, amount: u64) {
        self.amount = self.amount.saturating_add(amount);
    }
}

/// The value of an expression that is one number.
fn literal(expr: &ConstExpr<'_>) -> Option<u64> {
    let mut operators = expr.get_operators_reader();
    let value = match operators.read().ok()? {
        Operator::I32Const { value } => u64::from(value as u32),
        Operator::I64Const { value } => value as u64,
        _ => return None,
    };
    matches!(operators.read(), Ok(Operator::End)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Allocator, OptLevel};

    fn heavy(wat: &str) -> bool {
        let options = CompileOptions {
            fuel: false,
            opt_level: OptLevel::Speed,
            proposals: Vec::new(),
            allocator: Allocator::OnDemand,
        };
        let wasm = wat::parse_str(format!("(module (func $f) (type $a (array i64)) {wat})"));
        Facts::of(&wasm.unwrap(), &options).unwrap().heavy
    }

    /// Both sides of what a normal scheduler may wait for, for each sort of work.
    #[test]
    fn much_work_is_heavy() {
        let global = |length: u64| {
            let length = format!("(i32.const {length})");
            format!("(global (ref $a) (array.new $a (i64.const 0) {length}))")
        };
        let functions = |head: &str, count: usize| format!("({head} {})", "$f ".repeat(count));
        let most = BOUNDED_WORK as usize;
        let table = "(table 1 funcref)".to_owned();
        for (light, much) in [
            (global(BOUNDED_WORK - 200), global(BOUNDED_WORK)),
            (functions("elem func", most / 16 - 2), functions("elem func", most / 16)),
            (
                table.clone() + &functions("elem (i32.const 0) func", most / 2 - 20),
                table.clone() + &functions("elem (i32.const 0) func", most / 2),
            ),
            (
                table.clone() + &functions("elem (i32.const 1048570) func", 6),
                table + &functions("elem (i32.const 1048570) func", most / 16),
            ),
            ("(table 262000 funcref)".into(), "(table 262145 funcref)".into()),
        ] {
            assert_eq!((heavy(&light), heavy(&much)), (false, true));
        }
    }
}
