//! The body of one operation: a few instructions that change or read the state. The parameters `$a`,
//! `$b` and `$c` say where, and what is read goes into `$r`.

use super::module::{FUNCTIONS, Holds, Spec, Type, width};
use super::random::Random;

/// One to three instructions.
pub fn operation(spec: &Spec, random: &mut Random) -> String {
    let count = 1 + random.below(3);
    (0..count).map(|_| instruction(spec, random)).collect()
}

fn instruction(spec: &Spec, random: &mut Random) -> String {
    match random.below(5) {
        0 => on_memory(spec, random),
        1 => on_segment(spec, random),
        2 => on_table(spec, random),
        3 => on_global(spec, random),
        _ => on_control(spec, random),
    }
}

/// A parameter as an address, index or length of that width.
fn at(wide: bool, name: &str) -> String {
    if wide {
        format!("(i64.extend_i32_u (local.get ${name}))")
    } else {
        format!("(local.get ${name})")
    }
}

/// Notes an `i64`.
fn note(value: &str) -> String {
    format!("(local.set $r (i64.add (i64.rotl (local.get $r) (i64.const 9)) {value}))")
}

/// Notes an address, index or length.
fn note_index(wide: bool, value: &str) -> String {
    note(&if wide { value.to_owned() } else { format!("(i64.extend_i32_u {value})") })
}

fn on_memory(spec: &Spec, random: &mut Random) -> String {
    let m = random.index(spec.memories.len());
    let wide = spec.memories[m].wide;
    let (a, b, c, w) = (at(wide, "a"), at(wide, "b"), at(wide, "c"), width(wide));
    let bits = random.bits();
    match random.below(9) {
        0 => format!("(i64.store $m{m} {a} (i64.const {bits}))"),
        1 => format!("(i32.store8 $m{m} {a} (local.get $b))"),
        2 => format!("(v128.store $m{m} {a} (i32x4.splat (local.get $b)))"),
        3 => note(&format!("(i64.load $m{m} {a})")),
        4 => note_index(wide, &format!("(memory.grow $m{m} ({w}.and {a} ({w}.const 1)))")),
        5 => note_index(wide, &format!("(memory.size $m{m})")),
        6 => format!("(memory.fill $m{m} {a} (local.get $b) {c})"),
        7 => {
            let from = random.index(spec.memories.len());
            let other = spec.memories[from].wide;
            let (b, c) = (at(other, "b"), at(wide && other, "c"));
            format!("(memory.copy $m{m} $m{from} {a} {b} {c})")
        }
        _ => {
            let aligned = format!("({w}.and {b} ({w}.const -4))");
            note(&format!("(i64.extend_i32_u (i32.atomic.rmw.add $m{m} {aligned} (local.get $c)))"))
        }
    }
}

fn on_segment(spec: &Spec, random: &mut Random) -> String {
    let m = random.index(spec.memories.len());
    let a = at(spec.memories[m].wide, "a");
    let (data, elements) = (spec.data, spec.elements.len());
    match random.below(4) {
        0 if data > 0 => {
            let d = random.index(data);
            format!("(memory.init $m{m} $d{d} {a} (local.get $b) (local.get $c))")
        }
        1 if data > 0 => format!("(data.drop $d{})", random.index(data)),
        2 if elements > 0 => format!("(elem.drop $e{})", random.index(elements)),
        3 if elements > 0 => {
            let e = random.index(elements);
            let fits = |t: &usize| spec.elements[e].fits(spec.tables[*t].holds);
            let tables: Vec<usize> = (0..spec.tables.len()).filter(fits).collect();
            if tables.is_empty() {
                return format!("(elem.drop $e{e})");
            }
            let t = random.one_of(&tables);
            let a = at(spec.tables[t].wide, "a");
            format!("(table.init $t{t} $e{e} {a} (local.get $b) (local.get $c))")
        }
        _ => note("(i64.const 1)"),
    }
}

fn on_table(spec: &Spec, random: &mut Random) -> String {
    let t = random.index(spec.tables.len());
    let (wide, holds) = (spec.tables[t].wide, spec.tables[t].holds);
    let (a, b, c, w) = (at(wide, "a"), at(wide, "b"), at(wide, "c"), width(wide));
    let reference = holds.reference(random);
    match random.below(7) {
        0 => format!("(table.set $t{t} {a} {reference})"),
        1 => note(&format!("(i64.extend_i32_u (ref.is_null (table.get $t{t} {a})))")),
        2 => note_index(wide, &format!("(table.size $t{t})")),
        3 => {
            let few = format!("({w}.and {c} ({w}.const 3))");
            note_index(wide, &format!("(table.grow $t{t} {reference} {few})"))
        }
        4 => format!("(table.fill $t{t} {a} {reference} {c})"),
        5 => format!("(table.set $t{t} {a} (table.get $t{t} {b}))"),
        _ => {
            let fits = |from: &usize| spec.tables[*from].holds.fits(holds);
            let tables: Vec<usize> = (0..spec.tables.len()).filter(fits).collect();
            let from = random.one_of(&tables);
            let other = spec.tables[from].wide;
            let (b, c) = (at(other, "b"), at(wide && other, "c"));
            format!("(table.copy $t{t} $t{from} {a} {b} {c})")
        }
    }
}

fn on_global(spec: &Spec, random: &mut Random) -> String {
    let g = random.index(spec.globals.len());
    let bits = random.bits();
    let mixed = format!("(i64.xor (i64.extend_i32_s (local.get $a)) (i64.const {bits}))");
    let narrow = format!("(i32.wrap_i64 {mixed})");
    let (value, read) = match spec.globals[g] {
        Type::I32 => (narrow, format!("(i64.extend_i32_u (global.get $g{g}))")),
        Type::I64 => (mixed, format!("(global.get $g{g})")),
        Type::F32 => (
            format!("(f32.reinterpret_i32 {narrow})"),
            format!("(i64.extend_i32_u (i32.reinterpret_f32 (global.get $g{g})))"),
        ),
        Type::F64 => (
            format!("(f64.reinterpret_i64 {mixed})"),
            format!("(i64.reinterpret_f64 (global.get $g{g}))"),
        ),
        Type::V128 => (
            format!("(i64x2.replace_lane 1 (global.get $g{g}) {mixed})"),
            format!("(i64x2.extract_lane 0 (global.get $g{g}))"),
        ),
    };
    if random.chance(4) { note(&read) } else { format!("(global.set $g{g} {value})") }
}

fn on_control(spec: &Spec, random: &mut Random) -> String {
    let t = random.index(spec.tables.len());
    let index = at(spec.tables[t].wide, "a");
    let widened = |value: String| note(&format!("(i64.extend_i32_u {value})"));
    match random.below(6) {
        0 | 1 if spec.tables[t].holds != Holds::Extern => {
            widened(format!("(call_indirect $t{t} (type $t) (local.get $b) {index})"))
        }
        2 if matches!(spec.tables[t].holds, Holds::Typed | Holds::Filled) => {
            widened(format!("(call_ref $t (local.get $b) (table.get $t{t} {index}))"))
        }
        3 => widened(
            "(block $h (result i32) (try_table (result i32) (catch $e $h) (throw $e (local.get $a))))"
                .into(),
        ),
        4 => format!("(if (i32.eq (local.get $a) (local.get $b)) (then {}))", on_memory(spec, random)),
        _ => widened(format!("(call $r{} (local.get $c))", random.index(FUNCTIONS))),
    }
}
