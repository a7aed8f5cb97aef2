//! A random module as text: memories, tables, globals, segments of every sort, functions that tables
//! may hold, operations, and functions that show the state where nothing is exported.

use super::Call;
use super::ops::operation;
use super::random::Random;
use std::fmt::Write;

/// Operations of a module, each an export of three `i32`.
const OPS: usize = 24;
/// Functions of type `$t` that tables may hold: the last is imported.
pub const FUNCTIONS: usize = 5;

pub struct Memory {
    pub wide: bool,
    pages: u64,
}

/// What a table, or a segment, holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    Func,
    Typed,
    /// Never null.
    Filled,
    Extern,
}

pub struct Table {
    pub wide: bool,
    pub holds: Holds,
    size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    I32,
    I64,
    F32,
    F64,
    V128,
}

pub struct Spec {
    pub wat: String,
    pub memories: Vec<Memory>,
    pub tables: Vec<Table>,
    pub globals: Vec<Type>,
    /// Number of data segments.
    pub data: usize,
    pub elements: Vec<Holds>,
    /// Memories, tables, globals and functions are exported.
    pub exposed: bool,
    /// Exports that can be removed.
    pub removable: Vec<String>,
    /// Calls that show the state.
    pub observers: Vec<Call>,
}

impl Holds {
    /// Whether references of a table or segment of `self` may go to one of `to`.
    pub fn fits(self, to: Holds) -> bool {
        use Holds::{Extern, Filled, Func, Typed};
        match to {
            Func => self != Extern,
            Typed => matches!(self, Typed | Filled),
            Filled => self == Filled,
            Extern => self == Extern,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Holds::Func => "funcref",
            Holds::Typed => "(ref null $t)",
            Holds::Filled => "(ref $t)",
            Holds::Extern => "externref",
        }
    }

    /// A reference that it may hold.
    pub fn reference(self, random: &mut Random) -> String {
        let function = format!("(ref.func $r{})", random.index(FUNCTIONS));
        match (self, random.below(3)) {
            (Holds::Extern, _) => "(ref.null extern)".into(),
            (Holds::Func, 0) => "(ref.null func)".into(),
            (Holds::Func, 1) => "(global.get $ref)".into(),
            (Holds::Typed, 0) => "(ref.null $t)".into(),
            _ => function,
        }
    }
}

impl Type {
    pub fn text(self) -> &'static str {
        match self {
            Type::I32 => "i32",
            Type::I64 => "i64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::V128 => "v128",
        }
    }

    fn constant(self, random: &mut Random) -> String {
        let bits = random.bits();
        match self {
            Type::I32 => format!("(i32.const {})", bits as u32),
            Type::I64 => format!("(i64.const {bits})"),
            Type::F32 => format!("(f32.const nan:0x{:x})", bits as u32 & 0x3f_ffff | 1),
            Type::F64 => format!("(f64.const -nan:0x{:x})", bits & 0xf_ffff_ffff_ffff | 1),
            Type::V128 => format!("(v128.const i64x2 {bits} {})", random.bits()),
        }
    }
}

pub fn width(wide: bool) -> &'static str {
    if wide { "i64" } else { "i32" }
}

impl Spec {
    pub fn new(random: &mut Random) -> Self {
        const TYPES: [Type; 5] = [Type::I32, Type::I64, Type::F32, Type::F64, Type::V128];
        const HOLDS: [Holds; 4] = [Holds::Func, Holds::Typed, Holds::Filled, Holds::Extern];
        let some =
            |random: &mut Random, least: u64, most: u64| least + random.below(most - least + 1);
        let memory =
            |random: &mut Random| Memory { wide: random.chance(3), pages: random.below(3) };
        let table = |random: &mut Random| Table {
            wide: random.chance(3),
            holds: random.one_of(&HOLDS),
            size: random.below(9),
        };
        let mut spec = Spec {
            wat: String::new(),
            memories: (0..some(random, 1, 3)).map(|_| memory(random)).collect(),
            tables: (0..some(random, 1, 4)).map(|_| table(random)).collect(),
            globals: (0..some(random, 1, 6)).map(|_| random.one_of(&TYPES)).collect(),
            data: random.index(6),
            elements: (0..random.below(6)).map(|_| random.one_of(&HOLDS)).collect(),
            exposed: random.chance(2),
            removable: Vec::new(),
            observers: Vec::new(),
        };
        spec.write(random).expect("a string takes everything");
        spec
    }

    /// Calls of operations, with arguments near what matters.
    pub fn calls(&self, random: &mut Random, count: usize) -> Vec<Call> {
        let near = [0, 1, 2, 3, 5, 8, 9, 200, 65_528, 65_534, 65_536, 131_071, -1];
        let mut call = || {
            let args = (0..3).map(|_| random.one_of(&near)).collect();
            (format!("op{}", random.index(OPS)), args)
        };
        (0..count).map(|_| call()).collect()
    }

    fn write(&mut self, random: &mut Random) -> std::fmt::Result {
        let mut wat = String::from(
            "(module $random (type $t (func (param i32) (result i32)))
             (import \"env\" \"double\" (func $r4 (type $t)))\n",
        );
        self.state(&mut wat, random)?;
        self.segments(&mut wat, random)?;
        self.functions(&mut wat)?;
        self.start(&mut wat, random)?;
        for op in 0..OPS {
            writeln!(
                wat,
                "(func (export \"op{op}\") (param $a i32) (param $b i32) (param $c i32) \
                 (result i64) (local $r i64) {} (local.get $r))",
                operation(self, random)
            )?;
        }
        self.observe(&mut wat)?;
        if self.exposed {
            self.expose(&mut wat)?;
        }
        wat.push(')');
        self.wat = wat;
        Ok(())
    }

    fn state(&self, wat: &mut String, random: &mut Random) -> std::fmt::Result {
        for (at, Memory { wide, pages }) in self.memories.iter().enumerate() {
            let most = random.one_of(&["", " 2", " 5"]);
            writeln!(wat, "(memory $m{at} {} {pages}{most})", width(*wide))?;
        }
        writeln!(wat, "(tag $e (param i32)) (global $ref funcref (ref.func $r2))")?;
        writeln!(wat, "(global $at i32 (i32.const 3)) (global $n (mut i32) (i32.const 0))")?;
        for (at, ty) in self.globals.iter().enumerate() {
            let init = ty.constant(random);
            writeln!(wat, "(global $g{at} (mut {}) {init})", ty.text())?;
        }
        for (at, Table { wide, holds, size }) in self.tables.iter().enumerate() {
            let most = random.one_of(&["", " 9", " 30"]);
            let init = match (holds, random.chance(3)) {
                (Holds::Filled, _) => "(ref.func $r0)",
                (Holds::Func, true) => "(ref.func $r2)",
                (Holds::Typed, true) => "(ref.func $r1)",
                _ => "",
            };
            writeln!(wat, "(table $t{at} {} {size}{most} {} {init})", width(*wide), holds.text())?;
        }
        Ok(())
    }

    fn segments(&self, wat: &mut String, random: &mut Random) -> std::fmt::Result {
        for at in 0..self.data {
            let memory = random.index(self.memories.len());
            let Memory { wide, pages } = self.memories[memory];
            let bytes =
                random.one_of(&["", "x", "abcdefgh", "\\00\\ff\\00", "long enough for a block"]);
            let place = match (random.below(3), wide) {
                (0, _) => String::new(),
                _ if pages == 0 => String::new(),
                (1, false) => format!("(memory $m{memory}) (offset (global.get $at))"),
                (_, wide) => {
                    let offset = random.one_of(&[0, 7, 65_500]);
                    format!("(memory $m{memory}) ({}.const {offset})", width(wide))
                }
            };
            writeln!(wat, "(data $d{at} {place} \"{bytes}\")")?;
        }
        for (at, holds) in self.elements.iter().enumerate() {
            let count = random.below(4);
            let items: String = (0..count).map(|_| holds.reference(random)).collect();
            let fitting = |table: &usize| {
                holds.fits(self.tables[*table].holds) && self.tables[*table].size >= count + 3
            };
            let tables: Vec<usize> = (0..self.tables.len()).filter(fitting).collect();
            let place = match random.below(4) {
                0 => "declare".into(),
                1 | 2 if !tables.is_empty() => {
                    let table = random.one_of(&tables);
                    match (random.chance(2), self.tables[table].wide) {
                        (true, false) => format!("(table $t{table}) (offset (global.get $at))"),
                        (_, wide) => format!("(table $t{table}) ({}.const 1)", width(wide)),
                    }
                }
                _ => String::new(),
            };
            writeln!(wat, "(elem $e{at} {place} {} {items})", holds.text())?;
        }
        // Where functions are exported, that alone declares some of them.
        writeln!(
            wat,
            "(elem declare func {})",
            if self.exposed { "$r4" } else { "$r0 $r1 $r2 $r3 $r4" }
        )
    }

    fn functions(&self, wat: &mut String) -> std::fmt::Result {
        let memory = &self.memories[0];
        let at = if memory.wide { "(i64.const 40)" } else { "(i32.const 40)" };
        writeln!(
            wat,
            "(func $r0 (type $t) (i32.add (local.get 0) (i32.const 100)))
             (func $r1 (type $t) (global.set $n (i32.add (global.get $n) (local.get 0))) (global.get $n))
             (func $r2 (type $t) (i32.store $m0 {at} (local.get 0)) (i32.load8_u $m0 {at}))
             (func $r3 (type $t) (return_call $r0 (i32.mul (local.get 0) (i32.const 3))))"
        )
    }

    /// A start function, of what cannot trap.
    fn start(&self, wat: &mut String, random: &mut Random) -> std::fmt::Result {
        if random.chance(2) {
            return Ok(());
        }
        write!(wat, "(start $s) (func $s (global.set $n (i32.const 77))")?;
        if self.data > 0 {
            write!(wat, " (data.drop $d{})", random.index(self.data))?;
        }
        if !self.elements.is_empty() {
            write!(wat, " (elem.drop $e{})", random.index(self.elements.len()))?;
        }
        let memory = random.index(self.memories.len());
        let wide = width(self.memories[memory].wide);
        write!(wat, " (drop (memory.grow $m{memory} ({wide}.const 1)))")?;
        let table = random.index(self.tables.len());
        let Table { wide, holds, .. } = self.tables[table];
        let reference = holds.reference(random);
        writeln!(wat, " (drop (table.grow $t{table} {reference} ({}.const 2))))", width(wide))
    }

    /// Functions that show what is not exported, and calls of them.
    fn observe(&mut self, wat: &mut String) -> std::fmt::Result {
        let results: String = self.globals.iter().map(|ty| format!("{} ", ty.text())).collect();
        let reads: String =
            (0..self.globals.len()).map(|at| format!("(global.get $g{at})")).collect();
        writeln!(
            wat,
            "(func (export \"globals\") (result {results} i32) {reads} (global.get $n))"
        )?;
        self.observers.push(("globals".into(), vec![]));
        for (at, Memory { wide, .. }) in self.memories.iter().enumerate() {
            let i = width(*wide);
            writeln!(
                wat,
                "(func (export \"sum{at}\") (param $at {i}) (result i64 {i}) (local $s i64) (local $end {i})
                  (local.set $end ({i}.mul (memory.size $m{at}) ({i}.const 65536)))
                  (loop $l (if ({i}.lt_u (local.get $at) (local.get $end)) (then
                    (local.set $s (i64.xor (i64.rotl (i64.mul (local.get $s) (i64.const 31)) (i64.const 7))
                      (i64.load $m{at} (local.get $at))))
                    (local.set $at ({i}.add (local.get $at) ({i}.const 8))) (br $l))))
                  (local.get $s) (memory.size $m{at}))"
            )?;
            self.observers.push((format!("sum{at}"), vec![0]));
        }
        for (at, Table { wide, holds, .. }) in self.tables.iter().enumerate() {
            let i = width(*wide);
            writeln!(
                wat,
                "(func (export \"null{at}\") (param {i}) (result i32 {i})
                   (ref.is_null (table.get $t{at} (local.get 0))) (table.size $t{at}))"
            )?;
            self.observers.extend((0..34).map(|slot| (format!("null{at}"), vec![slot])));
            if *holds != Holds::Extern {
                writeln!(
                    wat,
                    "(func (export \"call{at}\") (param {i} i32) (result i32)
                       (call_indirect $t{at} (type $t) (local.get 1) (local.get 0)))"
                )?;
                self.observers.extend((0..34).map(|slot| (format!("call{at}"), vec![slot, 5])));
            }
        }
        Ok(())
    }

    fn expose(&mut self, wat: &mut String) -> std::fmt::Result {
        for at in 0..self.memories.len() {
            writeln!(wat, "(export \"m{at}\" (memory $m{at}))")?;
        }
        for at in 0..self.tables.len() {
            writeln!(wat, "(export \"t{at}\" (table $t{at}))")?;
        }
        for at in 0..self.globals.len() {
            writeln!(wat, "(export \"g{at}\" (global $g{at}))")?;
        }
        for at in 0..FUNCTIONS {
            writeln!(wat, "(export \"r{at}\" (func $r{at}))")?;
            self.removable.push(format!("r{at}"));
        }
        Ok(())
    }
}
