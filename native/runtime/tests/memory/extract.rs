//! A module whose segments moved into images behaves as the module it was.

use crate::observe::*;
use crate::support::*;
use std::borrow::Cow;
use wasmtime_beam::memory::extract;
use wasmtime_beam::{Class, Kind};

/// Later segments overwrite earlier ones; nothing of the data section is left.
#[test]
fn segments_apply_in_order() {
    let extracted = same(
        r#"(module (memory (export "m") 2)
             (data (i32.const 10) "aaaaaaaa") (data (i32.const 12) "bb") (data (i32.const 65535) "xy")
             (data (i32.const 131072) "") (data (i32.const 20) "\00\00"))"#,
    );
    assert_eq!(segments(&extracted.wasm), None);
    assert_eq!(extracted.memories[0].content.len(), 65537);
    assert_eq!(&extracted.memories[0].content[10..18], b"aabbaaaa");
}

/// A module without segments is not even copied.
#[test]
fn nothing_to_take_is_nothing_done() {
    let wasm = wat::parse_str(r#"(module (memory 1) (data "passive") (func))"#).unwrap();
    let extracted = extract(&wasm).unwrap();
    assert!(matches!(extracted.wasm, Cow::Borrowed(_)));
    assert!(extracted.memories[0].content.is_empty());
}

/// Addresses of an offset beyond 2 GiB are unsigned.
#[test]
fn offsets_are_unsigned() {
    let wasm = wat::parse_str(r#"(module (memory 65536) (data (i32.const -65536) "x"))"#).unwrap();
    let memory = &extract(&wasm).unwrap().memories[0];
    // The segment is in bounds, but its image would be all holes.
    assert!(memory.slotted && memory.content.is_empty());
    same(r#"(module (memory (export "m") 1) (data (i32.const -1) "x"))"#);
}

/// One segment far away does not make us allocate what lies before it; ordinary gaps are taken.
#[test]
fn images_of_mostly_holes_are_not_made() {
    let far = |offset: usize| format!(r#"(module (memory 1000) (data (i32.const {offset}) "x"))"#);
    for (offset, taken) in [((16 << 20) - 1, true), (16 << 20, false)] {
        let wasm = wat::parse_str(far(offset)).unwrap();
        let content = extract(&wasm).unwrap().memories[0].content.len();
        assert_eq!(content, if taken { offset + 1 } else { 0 });
    }
    let many: String = (0..100).map(|_| "(memory 256)").collect();
    let data: String =
        (0..100).map(|m| format!(r#"(data (memory {m}) (i32.const 16777215) "x")"#)).collect();
    let wasm = wat::parse_str(format!("(module {many} {data})")).unwrap();
    let sizes = extract(&wasm).unwrap().memories;
    assert_eq!(sizes.iter().map(|m| m.content.len()).sum::<usize>(), 16 << 20);
}

/// Out of bounds: the instantiation fails as it would, whatever stands before or behind.
#[test]
fn a_segment_out_of_bounds_traps() {
    for end in ["65536", "65530", "-1", "65533"] {
        let wat = format!(
            r#"(module (memory (export "m") 1)
                 (data (i32.const 1) "a") (data (i32.const {end}) "1234") (data (i32.const 2) "b"))"#
        );
        same(&wat);
    }
    // Even without a byte, and exactly at the end it is in bounds.
    same(r#"(module (memory (export "m") 1) (data (i32.const 65537) ""))"#);
    same(r#"(module (memory (export "m") 1) (data (i32.const 65536) ""))"#);
    same(r#"(module (memory (export "m") 0) (data (i32.const 0) ""))"#);
    same(r#"(module (memory (export "m") 0) (data (i32.const 0) "x"))"#);
}

/// An offset that is not known keeps its segment, and the order on its memory.
#[test]
fn unknown_offsets_keep_the_order() {
    let extracted = same(
        r#"(module (import "h" "g" (global $g i32)) (memory $m (export "m") 1) (memory $n (export "n") 1)
             (data (memory $m) (i32.const 14) "first") (data (memory $m) (global.get $g) "unknown")
             (data (memory $m) (i32.const 17) "LAST") (data (memory $n) (i32.const 3) "other"))"#,
    );
    assert_eq!(segments(&extracted.wasm), Some(2));
    assert_eq!(extracted.memories[0].content.len(), 19);
    assert_eq!(extracted.memories[1].content.len(), 8);
    // Sums are left alone too.
    same(
        r#"(module (memory (export "m") 1)
             (data (offset (i32.add (i32.const 3) (i32.const 4))) "sum") (data (i32.const 8) "x"))"#,
    );
}

/// Dropped active segments and used passive ones keep their indices and their traps.
#[test]
fn code_that_names_segments_still_finds_them() {
    let extracted = same(
        r#"(module (memory (export "m") 1)
             (data $a (i32.const 0) "active") (data $p "passive") (data $b (i32.const 100) "more")
             (data $q "unused") (data $c (i32.const 200) "last")
             (func (export "empty") (memory.init $a (i32.const 0) (i32.const 0) (i32.const 0)))
             (func (export "trap") (memory.init $a (i32.const 0) (i32.const 0) (i32.const 1)))
             (func (export "beyond") (memory.init $a (i32.const 65537) (i32.const 0) (i32.const 0)))
             (func (export "offset") (memory.init $a (i32.const 0) (i32.const 1) (i32.const 0)))
             (func (export "pass") (memory.init $p (i32.const 50) (i32.const 1) (i32.const 6)))
             (func (export "read") (result i32) (i32.load (i32.const 50)))
             (func (export "drop") (data.drop $a) (data.drop $p) (data.drop $b))
             (func (export "gone") (memory.init $p (i32.const 50) (i32.const 1) (i32.const 6)))
             (func (export "b") (memory.init $b (i32.const 0) (i32.const 0) (i32.const 1))))"#,
    );
    // $a and $b stand empty, $p and $q are as they were, $c is behind all that code names.
    assert_eq!(segments(&extracted.wasm), Some(4));
    assert!(has_data_count(&extracted.wasm));
}

/// Arrays made from a dropped segment trap as before, from an empty one they are empty.
#[test]
fn arrays_from_segments() {
    let extracted = same(
        r#"(module (memory (export "m") 1) (type $bytes (array (mut i8)))
             (data $a (i32.const 0) "active") (data $p "passive")
             (func (export "none") (result i32)
               (array.len (array.new_data $bytes $a (i32.const 0) (i32.const 0))))
             (func (export "some") (result i32)
               (array.len (array.new_data $bytes $a (i32.const 0) (i32.const 1))))
             (func (export "passive") (result i32)
               (array.get_u $bytes (array.new_data $bytes $p (i32.const 0) (i32.const 7)) (i32.const 2)))
             (func (export "init") (array.init_data $bytes $a
               (array.new_default $bytes (i32.const 4)) (i32.const 0) (i32.const 0) (i32.const 1))))"#,
    );
    assert_eq!(segments(&extracted.wasm), Some(2));
}

/// When no code names a segment, its count goes too.
#[test]
fn an_unused_count_goes() {
    let extracted =
        same(r#"(module (memory (export "m") 1) (data (i32.const 0) "a") (data "passive"))"#);
    assert_eq!(segments(&extracted.wasm), Some(1));
    let wat = r#"(module (memory (export "m") 1) (data $a (i32.const 0) "a")
                   (func (export "f") (data.drop $a)))"#;
    assert!(has_data_count(&wat::parse_str(wat).unwrap()));
    assert!(has_data_count(&same(wat).wasm));
}

/// Compilers count segments that no code names; that count goes with the segments.
#[test]
fn an_idle_count_goes_with_the_last_segment() {
    use wasm_encoder::{
        ConstExpr, DataCountSection, DataSection, ExportKind, ExportSection, MemorySection,
        MemoryType, Module,
    };
    for passive in [0, 1] {
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: 1,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        let mut exports = ExportSection::new();
        exports.export("m", ExportKind::Memory, 0);
        let mut data = DataSection::new();
        data.active(0, &ConstExpr::i32_const(3), *b"counted");
        (0..passive).for_each(|_| _ = data.passive(*b"unused"));
        let mut module = Module::new();
        let count = DataCountSection { count: 1 + passive };
        module.section(&memories).section(&exports).section(&count).section(&data);
        let extracted = same_wasm(&module.finish());
        assert_eq!(segments(&extracted.wasm), (passive > 0).then_some(passive));
        assert!(!has_data_count(&extracted.wasm));
    }
}

/// Segments of an imported memory stay; those of defined ones are told apart from them.
#[test]
fn imported_memories_keep_their_segments() {
    let extracted = same(
        r#"(module (import "h" "m" (memory 1)) (memory $n (export "n") 1) (memory $o (export "o") 2)
             (data (i32.const 5) "imported") (data (memory $n) (i32.const 5) "one")
             (data (memory $o) (i32.const 70000) "two"))"#,
    );
    assert_eq!(segments(&extracted.wasm), Some(1));
    assert_eq!(extracted.memories.len(), 2);
    same(
        r#"(module (import "h" "m" (memory 1)) (memory $n (export "n") 1)
             (data (memory $n) (i32.const 0) "x") (data (memory 0) (i32.const 65536) "trap"))"#,
    );
}

/// A function that got out before the trap sees the memory as far as it was initialized.
#[test]
fn what_leaks_through_an_imported_table_sees_no_more() {
    for elements in [
        r#"(elem (i32.const 0) $f)"#,
        r#"(elem (i32.const 0) $f) (elem (i32.const 9999) $f)"#,
        r#"(elem (i32.const 0) $f) (elem declare func $f)"#,
    ] {
        for offset in [8, 65536] {
            let wat = format!(
                r#"(module (import "h" "t" (table 10 funcref)) (memory (export "m") 1) {elements}
                     (data (i32.const 4) "seen") (data (i32.const {offset}) "next") (data (i32.const 4) "last")
                     (func $f (result i32) (i32.load (i32.const 4))))"#
            );
            assert_eq!(same(&wat).memories[0].content.len(), 0);
        }
    }
    // An imported table without elements leaks nothing.
    let wat = r#"(module (import "h" "t" (table 10 funcref)) (table $own 2 funcref)
                   (memory (export "m") 1) (elem (table $own) (i32.const 0) func $f)
                   (data (i32.const 4) "seen") (func $f (result i32) (i32.load (i32.const 4))))"#;
    assert_eq!(same(wat).memories[0].content.len(), 8);
}

/// 64-bit memories have images; shared ones and small pages keep their segments.
#[test]
fn every_sort_of_memory() {
    let extracted = same(
        r#"(module (memory $a (export "a") i64 2) (memory $b (export "b") 1) (memory $c (export "c") 300 (pagesize 1))
             (data (memory $a) (i64.const 65534) "wide") (data (memory $b) (i32.const 9) "plain")
             (data (memory $c) (i32.const 290) "tiny") (data (memory $a) (i64.const 1) "again"))"#,
    );
    let sorts: Vec<_> =
        extracted.memories.iter().map(|m| (m.is64, m.slotted, m.content.len())).collect();
    assert_eq!(sorts, [(true, true, 65538), (false, true, 14), (false, false, 0)]);
    assert_eq!(extracted.memories[2].page_size_log2, 0);
    assert_eq!(segments(&extracted.wasm), Some(1));
    same(r#"(module (memory (export "a") i64 1) (data (i64.const -1) "x"))"#);

    let wasm = wat::parse_str(r#"(module (memory 1 2 shared) (data (i32.const 0) "s"))"#).unwrap();
    let extracted = extract(&wasm).unwrap();
    assert!(matches!(extracted.wasm, Cow::Borrowed(_)));
    assert!(extracted.memories[0].shared && !extracted.memories[0].slotted);

    let wasm = wat::parse_str("(module (memory i64 65536) (memory i64 65537))").unwrap();
    let slotted: Vec<_> = extract(&wasm).unwrap().memories.iter().map(|m| m.slotted).collect();
    assert_eq!(slotted, [true, false]);
}

/// Code, names and custom sections are byte for byte what they were.
#[test]
fn other_sections_are_untouched() {
    let wasm = wat::parse_str(
        r#"(module $named (memory $mem (export "m") 1) (data $d (i32.const 0) "gone")
             (@custom "mine" (after code) "kept")
             (func $f (export "f") (param $p i32) (result i32) (local.get $p)))"#,
    )
    .unwrap();
    let extracted = extract(&wasm).unwrap();
    let sections = |wasm: &[u8]| -> Vec<(u8, Vec<u8>)> {
        let payloads = wasmparser::Parser::new(0).parse_all(wasm);
        let sections = payloads.filter_map(|p| p.unwrap().as_section());
        sections.map(|(id, range)| (id, wasm[range].to_vec())).collect()
    };
    let mut expected = sections(&wasm);
    expected.retain(|(id, _)| ![11, 12].contains(id));
    assert_eq!(sections(&extracted.wasm), expected);
    assert!(expected.iter().any(|(id, _)| *id == 0));
}

/// Random modules: overlapping segments, some at unknown offsets, some out of bounds.
#[test]
fn random_modules_are_the_same() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..150 {
        let mut data = String::new();
        for index in 0..1 + random.below(8) {
            let (memory, near) = (random.below(2), random.below(40));
            let text: String =
                (0..random.below(20)).map(|_| (b'a' + random.below(26) as u8) as char).collect();
            let offset = match random.below(12) {
                0 => "(global.get $g)".to_string(),
                1 => format!("(i32.const {})", 65536 - random.below(20)),
                _ => format!("(i32.const {near})"),
            };
            data += &match random.below(8) {
                0 => format!("(data $s{index} \"{text}\")"),
                _ => format!("(data $s{index} (memory {memory}) {offset} \"{text}\")"),
            };
        }
        let used = random.below(3);
        let code = match used {
            0 => {
                r#"(func (export "init") (memory.init $s0 (i32.const 60) (i32.const 0) (i32.const 3)))"#
            }
            1 => r#"(func (export "drop") (data.drop $s0))"#,
            _ => "",
        };
        same(&format!(
            r#"(module (import "h" "g" (global $g i32)) (memory (export "m") 1) (memory (export "n") 1)
                 {data} {code})"#
        ));
    }
}

/// What is not a module is refused, wherever it ends.
#[test]
fn garbage_is_refused() {
    let wasm = wat::parse_str(r#"(module (memory 1) (data (i32.const 0) "abc"))"#).unwrap();
    for len in 0..wasm.len() {
        let (header, whole) = (8, len == wasm.len() - 1);
        if let Err(error) = extract(&wasm[..len]) {
            assert_eq!((error.class, error.kind), (Class::Compile, Kind::Malformed));
        } else {
            assert!(len >= header && !whole);
        }
    }
    let mut random = Random(99);
    for _ in 0..5000 {
        let mut bad = wasm.clone();
        let at = random.below(bad.len());
        bad[at] = random.next() as u8;
        // Any answer but a panic.
        let _ = extract(&bad);
    }
}
