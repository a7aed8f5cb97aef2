//! References without Erlang: what a store takes, and what becomes of what it was given.

use std::sync::Arc;

use wasmtime_beam::guest::{Datum, Elements, Guest, Ref, RefKind, Request, TypeName};
use wasmtime_beam::options::{CompileOptions, Proposal};
use wasmtime_beam::value::Value;
use wasmtime_beam::{Class, Kind, Result};

use crate::support::{Recorder, call, compile, done, guest_of, on_demand, start, submit};

const WAT: &str = r#"(module
  (type $pair (struct (field (mut i32)) (field (ref null $pair))))
  (type $bytes (array (mut i8)))
  (global $kept (mut externref) (ref.null extern))
  (func (export "keep") (param externref) (global.set $kept (local.get 0)))
  (func (export "id") (param externref) (result externref) (local.get 0))
  (func (export "pair") (param (ref $pair)) (result i32) (struct.get $pair 0 (local.get 0)))
  (func (export "bytes") (param (ref $bytes)) (result i32) (array.len (local.get 0)))
  (func (export "spin") (loop $again (br $again))))"#;

fn guest() -> Arc<Guest> {
    let proposals = vec![(Proposal::FunctionReferences, true), (Proposal::Gc, true)];
    guest_of(&compile(WAT, &CompileOptions { proposals, ..on_demand() }))
}

fn run(guest: &Guest, export: &str, args: &[Value]) -> Result<Vec<Value>> {
    submit(guest, &Recorder::new(), call(export, args));
    done(guest)
}

fn param(export: &str) -> TypeName {
    TypeName::Param(wasmtime_beam::guest::FuncName::Export(export.into()), 1)
}

fn pair(guest: &Guest, first: i32) -> Ref {
    let ty = param("pair").structure(guest).unwrap();
    guest.access(|mut view| view.struct_new(&ty, &[Value::I32(first), Value::Null])).unwrap()
}

fn kind(result: Result<impl Sized>) -> (Class, Kind) {
    let error = result.err().expect("refused");
    (error.class, error.kind)
}

/// A store takes its own references where their type is wanted, and says where one is not.
#[test]
fn a_store_looks_at_what_enters() {
    let (guest, other) = (guest(), guest());
    let mine = Value::Ref(pair(&guest, 7));
    assert_eq!(run(&guest, "pair", std::slice::from_ref(&mine)), Ok(vec![Value::I32(7)]));
    let refused = [
        (mine, Kind::Badarg),
        (Value::Null, Kind::Badarg),
        (Value::I31(1), Kind::Badarg),
        (Value::Ref(pair(&other, 1)), Kind::WrongInstance),
    ];
    for (value, expected) in refused {
        let error = run(&guest, "bytes", &[value]).expect_err("refused");
        assert_eq!((error.class, error.kind), (Class::Call, expected), "{}", error.message);
        assert!(error.message.contains("value 1"), "{}", error.message);
    }
}

/// An array is not made of elements of another type, whichever way they are given.
#[test]
fn elements_are_looked_at_before_an_array_is_made() {
    let guest = guest();
    let ty = param("bytes").array(&guest).unwrap();
    let made = |elements: Elements| guest.access(|mut view| view.array_new(&ty, &elements));
    for wrong in [
        Elements::List(vec![Value::I32(1), Value::I64(2)]),
        Elements::Fill(Value::Null, 3),
        Elements::Fill(Value::F32(0), 0),
    ] {
        assert_eq!(kind(made(wrong)), (Class::Ref, Kind::Badarg));
    }
    guest.access(|mut view| view.collect()).unwrap();
    let bytes = made(Elements::Bytes(vec![1, 2, 3])).unwrap();
    assert_eq!(bytes.kind(), RefKind::Array);
    assert_eq!(run(&guest, "bytes", &[Value::Ref(bytes)]), Ok(vec![Value::I32(3)]));
}

/// What the host put into a store is let go when nothing refers to it: not before, not later than
/// the next collection, however often it went in and out.
#[test]
fn a_datum_is_let_go() {
    let guest = guest();
    let datum: Datum = Arc::new("held");
    let external = guest.access(|mut view| view.make_extern(datum.clone())).unwrap();
    for _ in 0..100 {
        let back = run(&guest, "id", &[Value::Ref(external.clone())]).unwrap();
        assert!(matches!(&back[..], [Value::Ref(r)] if Arc::ptr_eq(r.datum().unwrap(), &datum)));
    }
    run(&guest, "keep", &[Value::Ref(external.clone())]).unwrap();
    drop(external);
    let collect = || guest.access(|mut view| view.collect()).unwrap();
    collect();
    assert_eq!(Arc::strong_count(&datum), 2, "the guest keeps it");
    run(&guest, "keep", &[Value::Null]).unwrap();
    collect();
    assert_eq!(Arc::strong_count(&datum), 1);
}

/// References are dropped by other threads while the guest runs, and their objects go afterwards.
#[test]
fn references_are_dropped_while_the_guest_runs() {
    let guest = guest();
    let datum: Datum = Arc::new(1);
    let make = || guest.access(|mut view| view.make_extern(datum.clone())).unwrap();
    let refs: Vec<Ref> = (0..1000).map(|_| make()).collect();
    let client = Recorder::new();
    start(&guest, &client, call("spin", &[]));
    std::thread::scope(|scope| {
        for part in refs.chunks(100) {
            let part = part.to_vec();
            scope.spawn(move || drop(part));
        }
    });
    drop(refs);
    assert!(guest.control().interrupt());
    assert_eq!(kind(client.outcome()), (Class::Trap, Kind::Interrupt));
    while guest.access(|mut view| view.collect()).is_err() {
        std::thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&datum), 1);
}

/// A reference outlives its store, and is then refused like the guest.
#[test]
fn a_reference_outlives_its_store() {
    let guest = guest();
    let pair = pair(&guest, 3);
    guest.destroy();
    assert_eq!(pair.kind(), RefKind::Struct);
    assert_eq!(pair.fields().len(), 2);
    let read = guest.access(|mut view| view.struct_get(&pair, 0));
    assert_eq!(kind(read), (Class::Call, Kind::Destroyed));
    let request = Request::CallRef { func: pair, args: Vec::new(), fuel: None };
    let job = wasmtime_beam::guest::Job::new(request, Recorder::new());
    assert_eq!(kind(guest.submit(job, None)), (Class::Call, Kind::Destroyed));
}
