//! Calls that run to their end.

use wasmtime_beam::guest::{Request, Step};
use wasmtime_beam::value::Value;
use wasmtime_beam::{Class, Kind};

use crate::support::{Recorder, call, done, guest, module, poll, submit};

const WAT: &str = r#"(module
  (memory (export "memory") 1 4)
  (data (i32.const 8) "hello")
  (global $n (mut i32) (i32.const 0))
  (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
  (func (export "swap") (param i64 f64) (result f64 i64) (local.get 1) (local.get 0))
  (func (export "bump") (result i32)
    (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))
  (func (export "trap") unreachable)
  (func (export "div") (param i32) (result i32) (i32.div_s (i32.const 1) (local.get 0)))
  (func (export "oob") (result i32) (i32.load (i32.const 0x7fffffff)))
  (func $deep (export "deep") (result i32) (i32.add (i32.const 1) (call $deep))))"#;

/// Results come back in their order and with their bits.
#[test]
fn a_call_answers_its_results() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("add", &[Value::I32(2), Value::I32(3)]));
    assert_eq!(done(&guest), Ok(vec![Value::I32(5)]));
    let nan = Value::F64(0x7ff8_0000_dead_beef);
    submit(&guest, &client, call("swap", &[Value::I64(-1), nan.clone()]));
    assert_eq!(done(&guest), Ok(vec![nan, Value::I64(-1)]));
    assert!(matches!(poll(&guest), Step::Idle));
}

/// Jobs run one at a time, in the order in which they were queued.
#[test]
fn jobs_run_in_order() {
    let (guest, client) = (guest(WAT), Recorder::new());
    let ids: Vec<_> = (0..10).map(|_| submit(&guest, &client, call("bump", &[]))).collect();
    for (at, id) in ids.into_iter().enumerate() {
        let Step::Done(job, outcome) = poll(&guest) else { panic!("not done") };
        assert_eq!((job.id(), outcome), (id, Ok(vec![Value::I32(at as i32 + 1)])));
    }
}

/// A trap has its kind and its trace, and the instance goes on.
#[test]
fn a_trap_leaves_the_instance_usable() {
    let (guest, client) = (guest(WAT), Recorder::new());
    let traps = [
        (call("trap", &[]), Kind::Unreachable),
        (call("div", &[Value::I32(0)]), Kind::IntegerDivisionByZero),
        (call("oob", &[]), Kind::MemoryOutOfBounds),
        (call("deep", &[]), Kind::StackOverflow),
    ];
    for (request, kind) in traps {
        submit(&guest, &client, request);
        let error = done(&guest).unwrap_err();
        assert_eq!((error.class, error.kind), (Class::Trap, kind));
        assert!(!error.trace.is_empty());
        submit(&guest, &client, call("add", &[Value::I32(1), Value::I32(1)]));
        assert_eq!(done(&guest), Ok(vec![Value::I32(2)]));
    }
}

/// What the module does not export cannot be asked for; what another module exports is an error of the
/// call.
#[test]
fn an_unknown_export_is_an_error() {
    let (guest, client) = (guest(WAT), Recorder::new());
    let unknown = Request::call(guest.module(), "nothing", Vec::new()).unwrap_err();
    assert_eq!(unknown.kind, Kind::UnknownExport);
    let other = module(r#"(module (func) (func) (func (export "other")))"#);
    submit(&guest, &client, Request::call(&other, "other", Vec::new()).unwrap());
    assert_eq!(done(&guest).unwrap_err().kind, Kind::UnknownExport);
}

/// An idle guest's memory is read and written within its bounds, both sides of each.
#[test]
fn idle_memory_is_accessible_within_bounds() {
    let guest = guest(WAT);
    let mut bytes = [0; 5];
    guest.access(|mut view| view.read(None, 8, &mut bytes)).unwrap();
    assert_eq!(&bytes, b"hello");
    guest.access(|mut view| view.write(Some("memory"), 65_534, b"ab")).unwrap();
    let over = guest.access(|mut view| view.write(None, 65_535, b"ab")).unwrap_err();
    assert_eq!((over.class, over.kind), (Class::Memory, Kind::MemoryOutOfBounds));
    let over = guest.access(|mut view| view.read(None, u64::MAX, &mut bytes)).unwrap_err();
    assert_eq!(over.kind, Kind::MemoryOutOfBounds);
    assert_eq!(guest.access(|mut view| view.size(None)).unwrap().pages, 1);
    let unknown = guest.access(|mut view| view.size(Some("heap"))).unwrap_err();
    assert_eq!(unknown.kind, Kind::UnknownExport);
}
