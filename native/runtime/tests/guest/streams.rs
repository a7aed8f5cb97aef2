//! The built-in imports: whole messages in and out, waits that end, pointers that are checked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use wasmtime_beam::error::{Class, Error, Kind};
use wasmtime_beam::guest::{Guest, Reason, Step};
use wasmtime_beam::module::{Module, parse_wat};
use wasmtime_beam::options::{CompileOptions, InstanceOptions, Proposal};
use wasmtime_beam::stream::{Draft, Outlet, Stream};
use wasmtime_beam::template::Template;
use wasmtime_beam::value::Value;

use crate::support::{Recorder, call, done, module, on_demand, options, poll, step, submit};

const ECHO: &str = r#"(module
  (import "erlang" "send" (func $send (param i32 i32)))
  (import "erlang" "recv" (func $recv (param i32 i32) (result i32)))
  (memory (export "memory") 4)
  (func (export "send") (param i32 i32) (call $send (local.get 0) (local.get 1)))
  (func (export "recv") (param i32 i32) (result i32) (call $recv (local.get 0) (local.get 1)))
  (func (export "one") (result i32) (i32.const 1)))"#;

/// Keeps what it is given.
#[derive(Default)]
struct Kept(Mutex<Vec<(Stream, Vec<u8>)>>);

struct Writing<'a>(&'a Kept, usize, Vec<u8>);

impl Outlet for Kept {
    fn put(&self, stream: Stream, bytes: &[u8]) {
        self.0.lock().unwrap().push((stream, bytes.to_vec()));
    }

    fn draft(&self, len: usize) -> Box<dyn Draft + '_> {
        Box::new(Writing(self, len, Vec::new()))
    }
}

impl Draft for Writing<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.2.extend_from_slice(bytes);
    }

    fn send(self: Box<Self>) {
        assert_eq!(self.1, self.2.len());
        self.0.put(Stream::Channel, &self.2);
    }
}

/// An instance whose built-in imports are linked.
fn made(module: &Module) -> (Arc<Guest>, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let template = Template::new(module, &builtin(module)).unwrap();
    assert!(template.is_streaming());
    let guest = Guest::with_outlet(&template, Some(kept.clone())).unwrap();
    guest.instantiate().unwrap();
    (guest, kept)
}

fn builtin(module: &Module) -> InstanceOptions {
    InstanceOptions { imports: Vec::new(), ..options(module) }
}

fn recv(guest: &Guest, ptr: i32, cap: i32) {
    submit(guest, &Recorder::new(), call("recv", &[Value::I32(ptr), Value::I32(cap)]));
}

fn received(guest: &Guest) -> i32 {
    match done(guest).unwrap()[..] {
        [Value::I32(n)] => n,
        ref other => panic!("{other:?}"),
    }
}

fn read(guest: &Guest, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    guest.access(|mut view| view.read(None, at, &mut bytes)).unwrap();
    bytes
}

/// Counts wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A guest waits without being polled, a message wakes it once, and is read whole.
#[test]
fn a_message_wakes_the_guest() {
    let (guest, _) = made(&module(ECHO));
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    recv(&guest, 100, 50);
    assert!(matches!(guest.poll(&mut Context::from_waker(&waker)), Step::Wait));
    assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
    guest.inbox().send(b"hello").unwrap();
    guest.inbox().send(b"again").unwrap();
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert_eq!(received(&guest), 5);
    assert_eq!(read(&guest, 100, 6), b"hello\0");
    assert_eq!(guest.inbox().held(), 5);
}

/// What does not fit stays, and its length is told; after the close comes the end, every time.
#[test]
fn answers_of_recv() {
    let (guest, _) = made(&module(ECHO));
    guest.inbox().send(b"12345").unwrap();
    guest.inbox().send(b"").unwrap();
    guest.inbox().close().unwrap();
    for (cap, answer) in [(0, -7), (4, -7), (5, 5), (0, 0), (9, -1), (0, -1)] {
        recv(&guest, 0, cap);
        assert_eq!((cap, received(&guest)), (cap, answer));
    }
}

/// The close wakes a guest that waits.
#[test]
fn a_close_wakes_the_guest() {
    let (guest, _) = made(&module(ECHO));
    recv(&guest, 0, 10);
    assert!(matches!(poll(&guest), Step::Wait));
    guest.inbox().close().unwrap();
    assert_eq!(received(&guest), -1);
}

/// A wait that is stopped takes nothing, holds no waker, and the next one works.
#[test]
fn a_stopped_wait_takes_nothing() {
    let (guest, _) = made(&module(ECHO));
    let wakes = Arc::new(Wakes::default());
    recv(&guest, 0, 10);
    let waker = Waker::from(wakes.clone());
    assert!(matches!(guest.poll(&mut Context::from_waker(&waker)), Step::Wait));
    drop(waker);
    assert!(guest.control().interrupt());
    guest.inbox().send(b"kept").unwrap();
    assert_eq!(done(&guest).unwrap_err().kind, Kind::Interrupt);
    assert_eq!(Arc::strong_count(&wakes), 1);
    recv(&guest, 0, 10);
    assert_eq!(received(&guest), 4);
}

/// A destroy frees what was sent, and a guest that waits does not take it for the end of its input.
#[test]
fn a_destroy_empties_the_inbox() {
    let (guest, _) = made(&module(ECHO));
    guest.inbox().send(&[7; 1000]).unwrap();
    recv(&guest, 0, 0);
    assert_eq!(received(&guest), -1002);
    assert_eq!(guest.inbox().held(), 1000);
    guest.destroy();
    assert_eq!(guest.inbox().held(), 0);
    assert_eq!(guest.inbox().send(b"x").unwrap_err().kind, Kind::Destroyed);
    let (waiting, _) = made(&module(ECHO));
    recv(&waiting, 0, 10);
    assert!(matches!(poll(&waiting), Step::Wait));
    waiting.destroy();
    assert_eq!(done(&waiting).unwrap_err().kind, Kind::Destroyed);
}

/// Messages larger than a piece, out and in, are whole; one whose copy is stopped is not sent, and
/// one whose reading is stopped stays.
#[test]
fn large_messages_are_whole_or_not_there() {
    let (guest, kept) = made(&module(ECHO));
    let large: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    guest.inbox().send(&large).unwrap();
    recv(&guest, 7, 200_000);
    assert!(matches!(poll(&guest), Step::Wait));
    assert!(guest.control().interrupt());
    assert_eq!(done(&guest).unwrap_err().kind, Kind::Interrupt);
    recv(&guest, 7, 200_000);
    assert_eq!(received(&guest), 200_000);
    assert_eq!(read(&guest, 7, large.len()), large);
    let send = || call("send", &[Value::I32(7), Value::I32(200_000)]);
    let job = submit(&guest, &Recorder::new(), send());
    assert!(matches!(poll(&guest), Step::Wait));
    assert!(guest.control().cancel(job, Reason::Interrupt));
    assert_eq!(done(&guest).unwrap_err().kind, Kind::Interrupt);
    assert!(kept.0.lock().unwrap().is_empty());
    submit(&guest, &Recorder::new(), send());
    assert_eq!(done(&guest), Ok(vec![]));
    assert_eq!(*kept.0.lock().unwrap(), [(Stream::Channel, large)]);
}

/// Both sides of the memory's end; nothing is sent, received or lost by a pointer that is wrong.
#[test]
fn pointers_are_checked() {
    let (guest, kept) = made(&module(ECHO));
    guest.inbox().send(b"kept").unwrap();
    let end = 4 * 65536;
    for export in ["send", "recv"] {
        for (ptr, len) in [(end - 8, 9), (end + 1, 0), (0, -1), (-1, 1), (-4, 8)] {
            let request = call(export, &[Value::I32(ptr), Value::I32(len)]);
            submit(&guest, &Recorder::new(), request);
            let error = done(&guest).unwrap_err();
            assert_eq!((error.class, error.kind), (Class::Trap, Kind::MemoryOutOfBounds));
            assert!(!error.trace.is_empty());
        }
    }
    assert!(kept.0.lock().unwrap().is_empty());
    recv(&guest, end - 8, 8);
    assert_eq!(received(&guest), 4);
    for (ptr, len) in [(end - 8, 8), (end, 0)] {
        submit(&guest, &Recorder::new(), call("send", &[Value::I32(ptr), Value::I32(len)]));
        assert_eq!(done(&guest), Ok(vec![]));
    }
    let sent = kept.0.lock().unwrap().iter().map(|(_, m)| m.clone()).collect::<Vec<_>>();
    assert_eq!(sent, [b"kept\0\0\0\0".to_vec(), vec![]]);
}

/// With a memory of 64 bits pointers have 64 too.
#[test]
fn wide_memories_have_wide_pointers() {
    let wat =
        ECHO.replace("i32 i32", "i64 i64").replace("(result i32) (call", "(result i64) (call");
    let wat = wat.replace("(param i64 i64) (result i32)))", "(param i64 i64) (result i64)))");
    let wat = wat.replace("\"memory\") 4", "\"memory\") i64 4");
    let wide = CompileOptions { proposals: vec![(Proposal::Memory64, true)], ..on_demand() };
    wasmtime_beam::ticker::start().unwrap();
    let (guest, kept) = made(&Module::compile(&parse_wat(wat.as_bytes()).unwrap(), &wide).unwrap());
    guest.inbox().send(b"wide").unwrap();
    let run = |name, ptr, len| {
        submit(&guest, &Recorder::new(), call(name, &[Value::I64(ptr), Value::I64(len)]));
        done(&guest)
    };
    assert_eq!(run("recv", 16, 3), Ok(vec![Value::I64(-6)]));
    assert_eq!(run("recv", 16, 4), Ok(vec![Value::I64(4)]));
    assert_eq!(run("send", 16, 4), Ok(vec![]));
    assert_eq!(run("send", -4, 8).unwrap_err().kind, Kind::MemoryOutOfBounds);
    assert_eq!(run("recv", i64::MAX, i64::MAX).unwrap_err().kind, Kind::MemoryOutOfBounds);
    assert_eq!(*kept.0.lock().unwrap(), [(Stream::Channel, b"wide".to_vec())]);
}

fn refused(wat: &str) -> Error {
    let module = module(wat);
    Template::new(&module, &builtin(&module)).err().unwrap()
}

/// Another type, or no memory, is told by name; other names of the module are unknown.
#[test]
fn wrong_imports_are_refused() {
    for (wat, kind) in [
        (r#"(import "erlang" "send" (func (param i32)))"#, Kind::IncompatibleImport),
        (
            r#"(import "erlang" "send" (func (param i32 i32) (result i32)))"#,
            Kind::IncompatibleImport,
        ),
        (r#"(import "erlang" "recv" (func (param i32 i32)))"#, Kind::IncompatibleImport),
        (
            r#"(import "erlang" "recv" (func (param i64 i64) (result i64)))"#,
            Kind::IncompatibleImport,
        ),
        (r#"(import "erlang" "link" (func))"#, Kind::UnknownImport),
    ] {
        let error = refused(&format!(r#"(module {wat} (memory (export "memory") 1))"#));
        assert_eq!((error.class, error.kind), (Class::Link, kind), "{wat}: {error}");
        assert!(error.message.contains("erlang"), "{error}");
    }
    let error = refused(r#"(module (import "erlang" "send" (func (param i32 i32))) (memory 1))"#);
    assert_eq!((error.class, error.kind), (Class::Link, Kind::IncompatibleImport));
    assert!(error.message.contains("erlang.send"), "{error}");
}

/// An import that the host serves is the host's.
#[test]
fn the_hosts_import_comes_first() {
    let module = module(ECHO);
    let theirs = vec![("erlang".to_owned(), "send".to_owned())];
    let template =
        Template::new(&module, &InstanceOptions { imports: theirs, ..options(&module) }).unwrap();
    assert!(!template.is_streaming());
    let guest = Guest::of(&template).unwrap();
    guest.instantiate().unwrap();
    submit(&guest, &Recorder::new(), call("send", &[Value::I32(1), Value::I32(2)]));
    let Step::Host(asked) = step(&guest) else { panic!("the host was not asked") };
    let import = guest.control().parked_import(asked.id).unwrap();
    assert_eq!((import.name.as_str(), asked.args.len()), ("send", 2));
}

/// The memory called `memory` is meant, wherever it stands; without one, the first exported.
#[test]
fn the_memory_is_found_by_name() {
    let wat = r#"(module
      (import "erlang" "recv" (func $recv (param i32 i32) (result i32)))
      (memory (export "other") 1) (memory (export "NAME") 1)
      (func (export "recv") (param i32 i32) (result i32) (call $recv (local.get 0) (local.get 1))))"#;
    for (name, expected) in [("memory", "memory"), ("last", "other")] {
        let module = module(&wat.replace("NAME", name));
        let guest = Guest::new(&module, &builtin(&module)).unwrap();
        guest.instantiate().unwrap();
        guest.inbox().send(b"here").unwrap();
        recv(&guest, 0, 4);
        assert_eq!(received(&guest), 4);
        let mut bytes = [0; 4];
        guest.access(|mut view| view.read(Some(expected), 0, &mut bytes)).unwrap();
        assert_eq!(&bytes, b"here");
    }
}
