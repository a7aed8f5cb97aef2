//! Random modules: whatever the init calls did, a snapshot goes on as the original would.
//! A failure prints the seed; `PREINIT_SEED` runs it again, `PREINIT_ROUNDS` sets how many are tried.

use crate::support::{Guest, preinit_with, wasm};
use std::fmt::Write;
use wasmtime_beam::preinit::SnapshotOptions;

/// xorshift64*: small, seeded, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }
}

const OPS: u64 = 40;

/// A module with some of everything; each operation is an export without parameters.
fn module(random: &mut Random) -> String {
    let mut wat = String::from("(module (type $t (func (result i32)))\n");
    let (m64, t64) = (random.below(2) == 0, random.below(2) == 0);
    let wide = |is: bool| if is { "i64" } else { "i32" };
    let (mi, ti) = (wide(m64), wide(t64));
    let pages = random.below(3);
    let size = random.below(12);
    write!(
        wat,
        "(memory $m {mi} {pages} 4) (memory $n 1) (table $f {ti} {size} 20 funcref) (table $g 5 funcref)
         (global $i (mut i32) (i32.const 1)) (global $l (mut i64) (i64.const 2))
         (global $s (mut f32) (f32.const 3)) (global $d (mut f64) (f64.const 4))
         (global $v (mut v128) (v128.const i64x2 5 6)) (global $at i32 (i32.const 1))
         (data $d0 \"abcdefgh\") (data $d1 \"\") (data (memory $n) (i32.const 65530) \"end\") (data $d2 \"xyz\")
         (elem $e0 func $r1 $r2) (elem (table $g) ({}) func $r0 $r1) (elem $e1 funcref (ref.null func) (ref.func $r2))
         (elem declare func $r0)\n",
        random.one_of(&["global.get $at", "i32.const 0", "i32.const 3"])
    )
    .unwrap();
    for f in 0..3 {
        writeln!(wat, "(func $r{f} (result i32) (i32.const {}))", 100 + f).unwrap();
    }
    for op in 0..OPS {
        writeln!(wat, "(func (export \"op{op}\") {})", operation(random, mi, ti)).unwrap();
    }
    observers(&mut wat, mi, ti);
    wat.push(')');
    wat
}

fn operation(random: &mut Random, mi: &str, ti: &str) -> String {
    let data = random.one_of(&["$d0", "$d1", "$d2"]);
    let elem = random.one_of(&["$e0", "$e1"]);
    let func = random.one_of(&["(ref.func $r0)", "(ref.func $r1)", "(ref.null func)"]);
    let near = random.below(3) * 65_536 + random.below(65_600);
    let (slot, few, bits) =
        (random.below(14), random.below(5), random.next() << 11 ^ random.next());
    match random.below(18) {
        0 => format!("(i64.store $m ({mi}.const {near}) (i64.const {bits}))"),
        1 => format!("(i32.store8 $n (i32.const {near}) (i32.const {few}))"),
        2 => format!("(memory.init $m {data} ({mi}.const {near}) (i32.const 0) (i32.const {few}))"),
        3 => format!("(data.drop {data})"),
        4 => format!("(drop (memory.grow $m ({mi}.const 1)))"),
        5 => format!("(memory.fill $m ({mi}.const {near}) (i32.const {few}) ({mi}.const {slot}))"),
        6 => {
            format!("(memory.copy $m $m ({mi}.const {near}) ({mi}.const {slot}) ({mi}.const 300))")
        }
        7 => format!("(table.set $f ({ti}.const {slot}) {func})"),
        8 => format!("(table.set $g (i32.const {few}) {func})"),
        9 => format!(
            "(table.init $f {elem} ({ti}.const {slot}) (i32.const 0) (i32.const {}))",
            few % 3
        ),
        10 => format!("(elem.drop {elem})"),
        11 => format!("(drop (table.grow $f {func} ({ti}.const {few})))"),
        12 => format!("(table.fill $f ({ti}.const {slot}) {func} ({ti}.const {few}))"),
        13 => format!("(table.copy $f $f ({ti}.const {few}) ({ti}.const {slot}) ({ti}.const 2))"),
        14 => format!(
            "(global.set $i (i32.const {})) (global.set $l (i64.const {bits}))",
            bits as u32
        ),
        15 => format!("(global.set $s (f32.reinterpret_i32 (i32.const {})))", bits as u32),
        16 => format!("(global.set $d (f64.reinterpret_i64 (i64.const {bits})))"),
        _ => format!("(global.set $v (v128.const i64x2 {bits} {near}))"),
    }
}

/// Functions that show the state that is not exported.
fn observers(wat: &mut String, mi: &str, ti: &str) {
    write!(
        wat,
        r#"(func (export "globals") (result i32 i64 f32 f64 v128)
            (global.get $i) (global.get $l) (global.get $s) (global.get $d) (global.get $v))
          (func (export "sizes") (result {mi} i32 {ti} i32)
            (memory.size $m) (memory.size $n) (table.size $f) (table.size $g))
          (func (export "f") (param {ti}) (result i32) (call_indirect $f (type $t) (local.get 0)))
          (func (export "g") (param i32) (result i32) (call_indirect $g (type $t) (local.get 0)))
          (func (export "sum") (param $at {mi}) (result i64) (local $sum i64) (local $end {mi})
            (local.set $end ({mi}.mul (memory.size $m) ({mi}.const 65536)))
            (loop $l (if ({mi}.lt_u (local.get $at) (local.get $end)) (then
              (local.set $sum (i64.xor (i64.rotl (i64.mul (local.get $sum) (i64.const 31)) (i64.const 7))
                (i64.load $m (local.get $at))))
              (local.set $at ({mi}.add (local.get $at) ({mi}.const 8))) (br $l))))
            (local.get $sum))
          (func (export "at") (param i32) (result i64) (i64.load $n (local.get 0)))"#
    )
    .unwrap();
}

/// Everything that can be seen of an instance.
fn view(guest: &mut Guest) -> Vec<crate::support::Outcome> {
    let mut seen =
        vec![guest.call("globals", &[]), guest.call("sizes", &[]), guest.call("sum", &[0])];
    seen.extend((0..21).map(|at| guest.call("f", &[at])));
    seen.extend((0..6).map(|at| guest.call("g", &[at])));
    seen.extend((0..65_536).step_by(1024).map(|at| guest.call("at", &[at])));
    seen.push(guest.call("at", &[65_528]));
    seen
}

fn round(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let wat = module(&mut random);
    let wasm = wasm(&wat);
    let ops = |random: &mut Random, count: u64| -> Vec<String> {
        (0..count).map(|_| format!("op{}", random.below(OPS))).collect()
    };
    let count = random.below(25);
    let (init, then) = (ops(&mut random, count), ops(&mut random, 25));
    // An operation that traps leaves what it did until then; the snapshot carries that too.
    let run = |guest: &mut Guest| init.iter().for_each(|op| _ = guest.call(op, &[]));
    let result = preinit_with(&wasm, &SnapshotOptions::default(), run)
        .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{wat}\n{init:?}"));
    let (mut original, mut result) = (Guest::new(&wasm), Guest::new(&result));
    run(&mut original);
    assert_eq!(view(&mut original), view(&mut result), "seed {seed} at once\n{wat}\n{init:?}");
    for op in &then {
        let (a, b) = (original.call(op, &[]), result.call(op, &[]));
        assert_eq!(a, b, "seed {seed}, {op}\n{wat}\n{init:?}");
    }
    assert_eq!(view(&mut original), view(&mut result), "seed {seed} later\n{wat}\n{init:?}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Original and snapshot cannot be told apart, now or later.
#[test]
fn random_modules() {
    if let Some(seed) = number("PREINIT_SEED") {
        return round(seed);
    }
    (1..=number("PREINIT_ROUNDS").unwrap_or(60)).for_each(round);
}
