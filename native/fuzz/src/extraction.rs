//! Memories whose segments moved into images: mapped, dirtied and restored, they are what Wasmtime's
//! own initialization makes, and code that names segments finds what it would.

use std::fmt::Write;

use wasmtime_beam::error::Kind;
use wasmtime_beam::memory::extract;
use wasmtime_beam::module::{Module, parse_wat};

use crate::differential::compile;
use crate::input::{Choices, Random};
use crate::ours::Ours;
use crate::plain::Plain;

/// Fuel of a call.
const FUEL: u64 = 20_000;

/// Instances of one module, each in the memory that the one before left.
const TENANTS: u64 = 3;

pub fn run(data: &[u8]) {
    if data.starts_with(b"\0asm") {
        return check(data, data.len() as u64);
    }
    let mut choices = Choices::new(data);
    let seed = choices.bits();
    let text = module(&mut choices);
    let wasm = parse_wat(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
    check(&wasm, seed);
}

fn check(wasm: &[u8], seed: u64) {
    // Of a module that is not valid, anything but a panic.
    if let Err(error) = extract(wasm) {
        assert_eq!(error.kind, Kind::Malformed, "{error}");
    }
    let Some((module, plain)) = compile(wasm) else { return };
    if module.facts().has_start || !module.imports().is_empty() {
        return;
    }
    let mut random = Random::new(seed);
    for _ in 0..TENANTS {
        tenant(&module, &plain, &mut random);
    }
}

fn tenant(module: &Module, plain: &wasmtime::Module, random: &mut Random) {
    let (ours, mut plain) = match (Ours::new(module), Plain::new(plain)) {
        (Ok(ours), Ok(plain)) => (ours, plain),
        (Err(_), Err(_)) => return,
        (ours, plain) => panic!("only one is made: {:?} {:?}", ours.err(), plain.err()),
    };
    assert_eq!(ours.state(), plain.state(module), "at first");
    for export in module.exports().iter().filter(|export| takes_nothing(module, &export.name)) {
        let name = &export.name;
        assert_eq!(ours.call(name, &[], Some(FUEL)), plain.call(name, &[], FUEL), "{name}");
    }
    assert_eq!(ours.state(), plain.state(module), "later");
    for export in module.exports() {
        dirty(&ours, &export.name, random);
    }
    ours.destroy();
    crate::reached();
}

fn takes_nothing(module: &Module, name: &str) -> bool {
    module.function(name).is_ok_and(|function| function.signature.params.is_empty())
}

/// Writes here and there, if that is a memory.
fn dirty(ours: &Ours, name: &str, random: &mut Random) {
    ours.access(|view| {
        let Ok(size) = view.size(Some(name)) else { return Ok(()) };
        for _ in 0..random.number() % 40 {
            let len = random.number() as usize % 9000;
            let bytes = random.bytes(len.min(size.bytes));
            let at = random.number() % (size.bytes - bytes.len() + 1) as u64;
            view.write(Some(name), at, &bytes)?;
        }
        Ok(())
    });
}

/// A module of memories and segments: overlapping, cut, out of bounds, at places known and unknown.
fn module(choices: &mut Choices<'_>) -> String {
    let mut text =
        String::from("(module\n(global $g i32 (i32.const 9)) (global $h i64 (i64.const 70))\n");
    let memories = 1 + choices.below(3);
    let wide: Vec<bool> = (0..memories).map(|at| memory(&mut text, at, choices)).collect();
    let segments = choices.below(10);
    for at in 0..segments {
        segment(&mut text, at, &wide, choices);
    }
    for at in 0..segments.min(choices.below(4)) {
        let target = choices.below(memories);
        let (from, len) = (choices.below(20), choices.below(20));
        let to = if wide[target] { "i64.const 40" } else { "i32.const 40" };
        let _ = writeln!(
            text,
            "(func (export \"init{at}\") (memory.init {target} $s{at} ({to}) (i32.const {from}) (i32.const {len})))"
        );
        if choices.chance(2) {
            let _ = writeln!(text, "(func (export \"drop{at}\") (data.drop $s{at}))");
        }
    }
    if choices.chance(3) {
        let one = if wide[0] { "i64" } else { "i32" };
        let _ = writeln!(
            text,
            "(func (export \"zgrow\") (result {one}) (memory.grow ({one}.const 1)))"
        );
    }
    text + ")"
}

/// Adds a memory; true when its addresses have 64 bits.
fn memory(text: &mut String, at: usize, choices: &mut Choices<'_>) -> bool {
    let sort = choices.below(6);
    let (index, pages, page_size) = match sort {
        0 => ("i64 ", choices.below(4), ""),
        1 => ("", choices.below(300), " (pagesize 1)"),
        2 => ("", 64 + choices.below(30), ""),
        _ => ("", choices.below(4), ""),
    };
    let _ = writeln!(text, "(memory (export \"m{at}\") {index}{pages}{page_size})");
    sort == 0
}

fn segment(text: &mut String, at: usize, wide: &[bool], choices: &mut Choices<'_>) {
    let memory = choices.below(wide.len());
    let (ty, global) = if wide[memory] { ("i64", "$h") } else { ("i32", "$g") };
    let place = match choices.below(8) {
        0 => 65_536 - choices.below(12),
        1 => 65_536 * choices.below(4),
        2 => 4096 * choices.below(40) + choices.below(3),
        _ => choices.below(50),
    };
    let offset = match choices.below(10) {
        0 => format!("(memory {memory}) (global.get {global})"),
        1 => format!("(memory {memory}) (offset ({ty}.add ({ty}.const {place}) ({ty}.const 3)))"),
        2 => format!("(memory {memory}) ({ty}.const -{place})"),
        3 => String::new(),
        _ => format!("(memory {memory}) ({ty}.const {place})"),
    };
    let zeros = choices.chance(3);
    let byte = |byte: &u8| format!("\\{:02x}", if zeros { 0 } else { *byte });
    let data: String = choices.some(24).iter().map(byte).collect();
    let _ = writeln!(text, "(data $s{at} {offset} \"{data}\")");
}
