//! Limits of one instance: refused at instantiation by name, and -1 for a guest that grows.

use wasmtime_beam::guest::Guest;
use wasmtime_beam::options::{CompileOptions, Limits, Proposal};
use wasmtime_beam::value::Value;
use wasmtime_beam::{Class, Kind};

use crate::support::{
    NO_LIMITS, Recorder, call, compile, done, module, on_demand, options, pooled, submit,
};

const WAT: &str = r#"(module
  (memory $a (export "memory") 2)
  (memory $b (export "other") 1)
  (table $t (export "table") 10 funcref)
  (func (export "grow") (param i32) (result i32) (memory.grow $a (local.get 0)))
  (func (export "grow_other") (param i32) (result i32) (memory.grow $b (local.get 0)))
  (func (export "grow_table") (param i32) (result i32)
    (table.grow $t (ref.null func) (local.get 0))))"#;

fn limited(limits: Limits) -> wasmtime_beam::Result<std::sync::Arc<Guest>> {
    let module = module(WAT);
    let mut options = options(&module);
    options.limits = limits;
    let guest = Guest::new(&module, &options)?;
    guest.instantiate().map(|()| guest)
}

fn grow(guest: &Guest, export: &str, by: i32) -> i32 {
    submit(guest, &Recorder::new(), call(export, &[Value::I32(by)]));
    match done(guest).unwrap()[..] {
        [Value::I32(old)] => old,
        _ => panic!("not an i32"),
    }
}

const PAGE: u64 = 65_536;

/// Each limit refuses an instance just above it, by its own kind, and lets one just below it live.
#[test]
fn limits_refuse_an_instance_by_kind() {
    let limit = |kind: Kind, below: Limits, at: Limits| {
        let error = limited(below).err().expect("refused");
        assert_eq!((error.class, error.kind), (Class::Limit, kind), "{}", error.message);
        assert!(limited(at).is_ok());
    };
    let memory = |bytes| Limits { memory: Some(bytes), ..NO_LIMITS };
    limit(Kind::MemoryLimit, memory(2 * PAGE - 1), memory(2 * PAGE));
    let total = |bytes| Limits { total_memory: Some(bytes), ..NO_LIMITS };
    limit(Kind::MemoryLimit, total(3 * PAGE - 1), total(3 * PAGE));
    let elements = |count| Limits { table_elements: Some(count), ..NO_LIMITS };
    limit(Kind::TableLimit, elements(9), elements(10));
    let tables = |count| Limits { tables: Some(count), ..NO_LIMITS };
    limit(Kind::TableLimit, tables(0), tables(1));
    let instances = |count| Limits { instances: Some(count), ..NO_LIMITS };
    limit(Kind::InstanceLimit, instances(0), instances(1));
}

/// A guest that grows beyond a limit gets -1 and lives on; a refused growth costs nothing.
#[test]
fn growth_beyond_a_limit_is_refused() {
    let guest = limited(Limits { memory: Some(4 * PAGE), ..NO_LIMITS }).unwrap();
    assert_eq!(grow(&guest, "grow", 3), -1);
    assert_eq!(grow(&guest, "grow", 2), 2);
    assert_eq!(grow(&guest, "grow", 1), -1);
    let guest = limited(Limits { total_memory: Some(5 * PAGE), ..NO_LIMITS }).unwrap();
    assert_eq!(grow(&guest, "grow", 3), -1);
    assert_eq!(grow(&guest, "grow", 1), 2);
    assert_eq!(grow(&guest, "grow_other", 1), 1);
    assert_eq!(grow(&guest, "grow_other", 1), -1);
    let guest = limited(Limits { table_elements: Some(12), ..NO_LIMITS }).unwrap();
    assert_eq!(grow(&guest, "grow_table", 3), -1);
    assert_eq!(grow(&guest, "grow_table", 2), 10);
}

/// Growth that the pool refuses is given back to the total.
#[test]
fn refused_growth_is_not_counted() {
    let limits = Limits { total_memory: Some(600 * PAGE), ..NO_LIMITS };
    let guest = limited(limits).unwrap();
    // The pool's memories hold 256 pages.
    for _ in 0..10 {
        assert_eq!(grow(&guest, "grow", 300), -1);
    }
    assert_eq!(grow(&guest, "grow", 254), 2);
    assert_eq!(grow(&guest, "grow_other", 255), 1);
}

/// Nor is growth beyond what a memory, or any of its type, may have; and it gives back nothing that
/// another one got.
#[test]
fn growth_that_no_memory_could_have_is_not_counted() {
    let wat = r#"(module
      (memory $a (export "memory") 1 2)
      (memory $b 1 (pagesize 1))
      (func (export "grow") (param i32) (result i32) (memory.grow $a (local.get 0)))
      (func (export "grow_small") (param i32) (result i32) (memory.grow $b (local.get 0))))"#;
    let proposals = vec![(Proposal::CustomPageSizes, true)];
    for compile_options in [on_demand(), pooled()] {
        let module =
            compile(wat, &CompileOptions { proposals: proposals.clone(), ..compile_options });
        let mut options = options(&module);
        options.limits = Limits { total_memory: Some(2 * PAGE + 1), ..NO_LIMITS };
        let guest = Guest::new(&module, &options).unwrap();
        guest.instantiate().unwrap();
        assert_eq!(grow(&guest, "grow", 2), -1);
        assert_eq!(guest.control().usage().memory, PAGE + 1);
        assert_eq!(grow(&guest, "grow", 1), 1);
        for _ in 0..10 {
            assert_eq!(grow(&guest, "grow_small", -1), -1);
            assert_eq!(guest.control().usage().memory, 2 * PAGE + 1);
        }
        assert_eq!(grow(&guest, "grow_small", 1), -1);
    }
}
