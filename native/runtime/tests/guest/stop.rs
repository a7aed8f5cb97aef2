//! What ends a run: timeouts, interrupts, in wasm code and in awaits.

use std::task::Waker;
use std::time::{Duration, Instant};

use wasmtime_beam::guest::{Guest, Reason, Step};
use wasmtime_beam::options::{Clocks, InstanceOptions, Output, Runner, Stdin, WasiOptions};
use wasmtime_beam::value::Value;
use wasmtime_beam::{Class, Kind};

use crate::support::{
    Recorder, call, done, guest, host_call, module, poll, start, start_within, submit,
    submit_within,
};

const WAT: &str = r#"(module
  (import "host" "ask" (func $ask))
  (func (export "one") (result i32) (i32.const 1))
  (func (export "ask") (call $ask))
  (func (export "loop") (loop (br 0))))"#;

/// An endless loop ends at its deadline, every time, and the instance goes on.
#[test]
fn a_loop_ends_at_its_deadline() {
    let (guest, client) = (guest(WAT), Recorder::new());
    for _ in 0..200 {
        let (since, after) = (Instant::now(), Duration::from_millis(2));
        start_within(&guest, &client, call("loop", &[]), Some(after));
        let error = client.outcome().unwrap_err();
        assert_eq!((error.class, error.kind), (Class::Trap, Kind::Timeout));
        assert!(since.elapsed() >= after);
        start(&guest, &client, call("one", &[]));
        assert_eq!(client.outcome(), Ok(vec![Value::I32(1)]));
    }
}

/// Many loops at once, each with its own deadline: no bump is lost.
#[test]
fn many_loops_end_together() {
    let module = module(WAT);
    let guests: Vec<_> =
        (0..16).map(|_| Guest::new(&module, &crate::support::options(&module)).unwrap()).collect();
    let client = Recorder::new();
    for (at, guest) in guests.iter().enumerate() {
        guest.instantiate().unwrap();
        let after = Duration::from_millis(5 + at as u64);
        start_within(guest, &client, call("loop", &[]), Some(after));
    }
    for _ in &guests {
        assert_eq!(client.outcome().unwrap_err().kind, Kind::Timeout);
    }
}

/// A deadline also ends a wait for the host, and covers the whole call.
#[test]
fn a_deadline_ends_a_host_call() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit_within(&guest, &client, call("ask", &[]), Some(Duration::from_millis(5)));
    let asked = host_call(&guest);
    assert_eq!(done(&guest).unwrap_err().kind, Kind::Timeout);
    guest.control().reply(asked.id, Ok(vec![]));
    submit(&guest, &client, call("one", &[]));
    assert_eq!(done(&guest), Ok(vec![Value::I32(1)]));
}

/// A deadline covers the time in the queue: a job that never began is answered too.
#[test]
fn a_deadline_ends_a_queued_job() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &Recorder::new(), call("ask", &[]));
    host_call(&guest);
    submit_within(&guest, &client, call("one", &[]), Some(Duration::from_millis(2)));
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Timeout);
}

/// The host's time is limited by its own option.
#[test]
fn a_silent_host_times_out() {
    let module = module(WAT);
    let mut options = crate::support::options(&module);
    options.host_timeout = Some(Duration::from_millis(5));
    let (guest, client) = (Guest::new(&module, &options).unwrap(), Recorder::new());
    guest.instantiate().unwrap();
    submit(&guest, &client, call("ask", &[]));
    host_call(&guest);
    let error = done(&guest).unwrap_err();
    assert_eq!((error.class, error.kind), (Class::Host, Kind::HostTimeout));
    assert_eq!(error.message, "the host function host.ask got no answer within 5 ms");
}

/// An interrupt ends a loop and a host call; without a run it says so.
#[test]
fn an_interrupt_ends_what_runs() {
    let (guest, client) = (guest(WAT), Recorder::new());
    assert!(!guest.control().interrupt());
    start(&guest, &client, call("loop", &[]));
    while !guest.control().interrupt() {
        std::thread::yield_now();
    }
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Interrupt);
    start(&guest, &client, call("ask", &[]));
    client.call();
    assert!(guest.control().interrupt());
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Interrupt);
}

/// What was asked for before the interrupt ends by it, also when nobody polled it yet: that one job, and
/// not what queues behind it, with either runner.
#[test]
fn an_interrupt_ends_what_is_about_to_begin() {
    let module = module(WAT);
    for runner in [Runner::Thread, Runner::Scheduler] {
        let options = InstanceOptions { runner, ..crate::support::options(&module) };
        let (guest, client) = (Guest::new(&module, &options).unwrap(), Recorder::new());
        guest.instantiate().unwrap();
        let first = submit(&guest, &client, call("loop", &[]));
        let second = submit(&guest, &client, call("one", &[]));
        let third = submit(&guest, &client, call("loop", &[]));
        assert!(guest.control().interrupt());
        assert_eq!(client.outcome().unwrap_err().kind, Kind::Interrupt);
        assert!(!guest.control().cancel(first, Reason::Interrupt));
        // Its turn went on to the next one.
        let scheduler = runner == Runner::Scheduler;
        assert_eq!(guest.control().take_turn(second, Waker::noop().clone()), scheduler);
        assert_eq!(done(&guest), Ok(vec![Value::I32(1)]));
        guest.control().hand_on(second);
        assert!(guest.control().interrupt());
        assert_eq!(client.outcome().unwrap_err().kind, Kind::Interrupt);
        assert!(!guest.control().cancel(third, Reason::Interrupt));
        assert!(!guest.control().interrupt());
        assert!(matches!(poll(&guest), Step::Idle));
    }
}

/// Behind a running job nothing is touched; a guest that was destroyed has nothing to interrupt.
#[test]
fn an_interrupt_ends_one_job() {
    let (guest, client, behind) = (guest(WAT), Recorder::new(), Recorder::new());
    submit(&guest, &client, call("ask", &[]));
    host_call(&guest);
    submit(&guest, &behind, call("one", &[]));
    assert!(guest.control().interrupt());
    assert!(guest.control().interrupt(), "it runs until it is polled");
    assert_eq!(done(&guest).unwrap_err().kind, Kind::Interrupt);
    assert_eq!(done(&guest), Ok(vec![Value::I32(1)]));
    submit(&guest, &behind, call("loop", &[]));
    guest.destroy();
    assert!(!guest.control().interrupt());
    while !matches!(poll(&guest), Step::Gone) {}
}

/// A cancel names one job; others go on.
#[test]
fn a_cancel_ends_one_job() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("one", &[]));
    let second = submit(&guest, &client, call("one", &[]));
    assert!(guest.control().cancel(second, Reason::Interrupt));
    assert!(!guest.control().cancel(second, Reason::Interrupt));
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Interrupt);
    assert_eq!(done(&guest), Ok(vec![Value::I32(1)]));
}

const SLEEPER: &str = r#"(module
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "one") (result i32) (i32.const 1))
  (func (export "sleep") (param i64) (result i32)
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (local.get 0))
    (call $poll (i32.const 0) (i32.const 128) (i32.const 1) (i32.const 512))))"#;

fn sleeper() -> std::sync::Arc<Guest> {
    let wasi = WasiOptions {
        args: vec![],
        env: vec![],
        dirs: vec![],
        stdin: Stdin::None,
        stdout: Output::None,
        stderr: Output::None,
        output_limit: 0,
        clocks: Clocks::All,
    };
    let module = module(SLEEPER);
    let options =
        InstanceOptions { imports: vec![], wasi: Some(wasi), ..crate::support::options(&module) };
    let guest = Guest::new(&module, &options).unwrap();
    guest.instantiate().unwrap();
    guest
}

/// A sleep ends by itself, and long before its time by a deadline.
#[test]
fn a_deadline_ends_a_sleep() {
    let (guest, client) = (sleeper(), Recorder::new());
    start(&guest, &client, call("sleep", &[Value::I64(2_000_000)]));
    assert_eq!(client.outcome(), Ok(vec![Value::I32(0)]));
    let since = Instant::now();
    let year = Value::I64(31_536_000_000_000_000);
    start_within(&guest, &client, call("sleep", &[year]), Some(Duration::from_millis(10)));
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Timeout);
    assert!(since.elapsed() < Duration::from_secs(5));
    start(&guest, &client, call("one", &[]));
    assert_eq!(client.outcome(), Ok(vec![Value::I32(1)]));
}

/// Deadlines that fire while a call is queued, starts, waits or ends: one answer each, and no
/// runner is left behind.
#[test]
fn deadlines_race_with_everything() {
    let (guest, client) = (guest(WAT), Recorder::new());
    for round in 0..2_000u64 {
        let timeout = Some(Duration::from_micros(round % 200));
        start_within(&guest, &client, call("one", &[]), timeout);
        match client.outcome() {
            Ok(values) => assert_eq!(values, [Value::I32(1)]),
            Err(error) => assert_eq!(error.kind, Kind::Timeout),
        }
    }
    start(&guest, &client, call("one", &[]));
    assert!(client.outcome().is_ok());
    // A second runner of the same guest would wait for ever, with a handle of its own.
    let since = Instant::now();
    while std::sync::Arc::strong_count(&guest) > 1 {
        assert!(since.elapsed() < Duration::from_secs(5), "a runner was left behind");
        std::thread::yield_now();
    }
}
