//! Host calls: parked awaits that others may enter.

use wasmtime_beam::guest::Step;
use wasmtime_beam::value::Value;
use wasmtime_beam::{Class, Error, Kind};

use crate::support::{Recorder, call, done, guest, host_call, poll, submit};

const WAT: &str = r#"(module
  (import "host" "ask" (func $ask (param i32) (result i64)))
  (memory (export "memory") 1)
  (func (export "ask") (param i32) (result i64) (call $ask (local.get 0)))
  (func (export "twice") (result i64)
    (i64.add (call $ask (i32.const 1)) (call $ask (i32.const 2))))
  (func (export "echo") (result i32)
    (drop (call $ask (i32.const 0))) (i32.load (i32.const 16))))"#;

/// The call says what it wants, and the answer is what the guest gets.
#[test]
fn an_answer_reaches_the_guest() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("twice", &[]));
    for (arg, answer) in [(1, 10), (2, 32)] {
        let asked = host_call(&guest);
        let import = guest.control().parked_import(asked.id).unwrap();
        assert_eq!((import.module.as_str(), import.name.as_str()), ("host", "ask"));
        assert_eq!(asked.args, [Value::I32(arg)]);
        assert!(matches!(poll(&guest), Step::Wait));
        guest.control().reply(asked.id, Ok(vec![Value::I64(answer)]));
    }
    assert_eq!(done(&guest), Ok(vec![Value::I64(42)]));
}

/// An answer that does not fit traps the call and names what was wrong; the instance goes on.
#[test]
fn a_wrong_answer_traps_the_call() {
    let (guest, client) = (guest(WAT), Recorder::new());
    let wrong = [vec![], vec![Value::I32(1)], vec![Value::I64(1), Value::I64(2)]];
    for answer in wrong {
        submit(&guest, &client, call("ask", &[Value::I32(0)]));
        let asked = host_call(&guest);
        guest.control().reply(asked.id, Ok(answer));
        let error = done(&guest).unwrap_err();
        assert_eq!((error.class, error.kind), (Class::Host, Kind::HostError));
        assert!(error.message.contains("host.ask"), "{}", error.message);
    }
}

/// An error as the answer is what the call ends with.
#[test]
fn an_error_as_answer_ends_the_call() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("ask", &[Value::I32(0)]));
    let asked = host_call(&guest);
    guest.control().reply(asked.id, Err(Error::new(Class::Host, Kind::HostError, "no")));
    let error = done(&guest).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (Kind::HostError, "no"));
    assert!(!error.trace.is_empty());
}

/// The first answer counts; a second one, an unknown one and a late one are dropped.
#[test]
fn only_the_first_answer_counts() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("ask", &[Value::I32(0)]));
    let asked = host_call(&guest);
    guest.control().reply(asked.id + 1000, Ok(vec![Value::I64(0)]));
    guest.control().reply(asked.id, Ok(vec![Value::I64(1)]));
    guest.control().reply(asked.id, Ok(vec![Value::I64(2)]));
    assert_eq!(done(&guest), Ok(vec![Value::I64(1)]));
    guest.control().reply(asked.id, Ok(vec![Value::I64(3)]));
    assert!(matches!(poll(&guest), Step::Idle));
}

/// A parked guest lets others read and write its memory, as often as they like.
#[test]
fn a_parked_guest_lets_visitors_in() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("echo", &[]));
    let asked = host_call(&guest);
    for value in 0..100u32 {
        guest.access(|mut view| view.write(None, 16, &value.to_le_bytes())).unwrap();
        let mut back = [0; 4];
        guest.access(|mut view| view.read(None, 16, &mut back)).unwrap();
        assert_eq!(u32::from_le_bytes(back), value);
    }
    guest.control().reply(asked.id, Ok(vec![Value::I64(0)]));
    assert_eq!(done(&guest), Ok(vec![Value::I32(99)]));
}

/// Between the answer and the next park the guest is busy for others.
#[test]
fn an_answered_guest_is_busy() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("ask", &[Value::I32(0)]));
    let asked = host_call(&guest);
    guest.control().reply(asked.id, Ok(vec![Value::I64(0)]));
    let busy = guest.access(|mut view| view.size(None)).unwrap_err();
    assert_eq!(busy.kind, Kind::Busy);
    assert!(done(&guest).is_ok());
    assert!(guest.access(|mut view| view.size(None)).is_ok());
}

/// A host may call the instance that asks it: the call runs at once, inside the parked one, and
/// may ask the host again.
#[test]
fn a_host_may_call_the_instance_that_asks() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("ask", &[Value::I32(0)]));
    let mut asked = vec![host_call(&guest)];
    for depth in 1..=3 {
        submit(&guest, &client, call("ask", &[Value::I32(depth)]));
        let inner = host_call(&guest);
        assert_eq!(inner.args, [Value::I32(depth)]);
        guest.access(|mut view| view.write(None, 0, b"deep")).unwrap();
        asked.push(inner);
    }
    while asked.len() > 1 {
        let inner = asked.pop().unwrap();
        guest.control().reply(inner.id, Ok(vec![Value::I64(asked.len() as i64)]));
        assert!(matches!(poll(&guest), Step::Wait));
        assert_eq!(client.outcome(), Ok(vec![Value::I64(asked.len() as i64)]));
    }
    guest.control().reply(asked[0].id, Ok(vec![Value::I64(7)]));
    assert_eq!(done(&guest), Ok(vec![Value::I64(7)]));
}

/// A trap, or a deadline, of a nested call ends that call only.
#[test]
fn a_nested_call_fails_alone() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("ask", &[Value::I32(0)]));
    let outer = host_call(&guest);
    submit(&guest, &client, call("ask", &[Value::I32(1)]));
    let inner = host_call(&guest);
    guest.control().reply(inner.id, Err(Error::new(Class::Host, Kind::HostError, "no")));
    assert!(matches!(poll(&guest), Step::Wait));
    assert_eq!(client.outcome().unwrap_err().kind, Kind::HostError);
    let timeout = Some(std::time::Duration::from_millis(2));
    crate::support::submit_within(&guest, &client, call("ask", &[Value::I32(1)]), timeout);
    host_call(&guest);
    while client.outcomes() == 0 {
        poll(&guest);
    }
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Timeout);
    guest.control().reply(outer.id, Ok(vec![Value::I64(7)]));
    assert_eq!(done(&guest), Ok(vec![Value::I64(7)]));
}

/// An interrupt ends the outermost call with everything inside, and everybody is answered.
#[test]
fn an_interrupt_ends_nested_calls_too() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("ask", &[Value::I32(0)]));
    host_call(&guest);
    submit(&guest, &client, call("ask", &[Value::I32(1)]));
    host_call(&guest);
    assert!(guest.control().interrupt());
    assert_eq!(done(&guest).unwrap_err().kind, Kind::Interrupt);
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Interrupt);
    submit(&guest, &client, call("ask", &[Value::I32(2)]));
    let asked = host_call(&guest);
    guest.control().reply(asked.id, Ok(vec![Value::I64(2)]));
    assert!(done(&guest).is_ok());
}
