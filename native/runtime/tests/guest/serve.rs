//! Who serves host calls, and what that process asks for meanwhile.

use std::sync::Arc;

use parking_lot::Mutex;
use wasmtime_beam::guest::{
    Activity, Awaited, Client, Guest, HostCall, HostImport, Job, JobId, Outcome, Submitted,
};
use wasmtime_beam::value::Value;
use wasmtime_beam::{Kind, Result};

use crate::support::{Asked, call, done, guest, host_call, rests};

const WAT: &str = r#"(module
  (import "host" "ask" (func $ask (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "ask") (param i32) (result i32) (call $ask (local.get 0)))
  (func (export "double") (param i32) (result i32) (i32.mul (local.get 0) (i32.const 2)))
  (func (export "grow") (result i32) (memory.grow (i32.const 1))))"#;

/// A request of process `asker`, served by process `host`.
struct Process {
    asker: u64,
    host: u64,
    waits: bool,
    outcome: Mutex<Option<Outcome>>,
}

impl Client for Process {
    fn host_call(&self, _: HostCall, _: &HostImport) -> bool {
        true
    }

    fn asker(&self) -> u64 {
        self.asker
    }

    fn host(&self) -> u64 {
        self.host
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn finish(&self, _: JobId, outcome: Outcome) {
        assert!(self.outcome.lock().replace(outcome).is_none(), "finished twice");
    }
}

const CALLER: u64 = 1;
const HOST: u64 = 2;
const OTHER: u64 = 3;

struct Request {
    client: Arc<Process>,
    job: JobId,
    submitted: Submitted,
}

fn ask(guest: &Guest, asker: u64, waits: bool, export: &str, arg: i32) -> Request {
    let outcome = Mutex::new(None);
    let client = Arc::new(Process { asker, host: HOST, waits, outcome });
    let job = Job::new(call(export, &[Value::I32(arg)]).of(guest), client.clone());
    let id = job.id();
    let submitted = guest.submit(job, None).unwrap();
    Request { client, job: id, submitted }
}

fn outcome(request: &Request) -> Outcome {
    request.client.outcome.lock().take().expect("an outcome")
}

fn number(value: i32) -> Result<Vec<Value>> {
    Ok(vec![Value::I32(value)])
}

/// The host's request runs inside the call that waits for it; another's queues.
#[test]
fn the_host_is_let_in() {
    let guest = guest(WAT);
    ask(&guest, CALLER, true, "ask", 1);
    let asked = host_call(&guest);
    assert_eq!(ask(&guest, OTHER, true, "double", 4).submitted, Submitted::Queued);
    assert_eq!(ask(&guest, CALLER, true, "double", 4).submitted, Submitted::Queued);
    let nested = ask(&guest, HOST, true, "double", 21);
    assert_eq!(nested.submitted, Submitted::Nested);
    rests(&guest);
    assert_eq!(outcome(&nested), number(42));
    guest.control().reply(asked.id, number(7));
    assert_eq!(done(&guest), number(7));
}

/// A request of the host that queued before the guest asked is taken in, unless its process goes on
/// without it.
#[test]
fn a_queued_request_of_the_host_is_adopted() {
    let guest = guest(WAT);
    ask(&guest, CALLER, true, "ask", 1);
    let other = ask(&guest, OTHER, true, "double", 1);
    let waits = ask(&guest, HOST, true, "double", 21);
    let goes_on = ask(&guest, HOST, false, "double", 3);
    let asked = host_call(&guest);
    rests(&guest);
    assert_eq!(outcome(&waits), number(42));
    assert!(other.client.outcome.lock().is_none() && goes_on.client.outcome.lock().is_none());
    assert_eq!(guest.control().activity(), (Activity::HostCall, 2));
    guest.control().reply(asked.id, number(7));
    assert_eq!(done(&guest), number(7));
    assert_eq!(done(&guest), number(2));
    assert_eq!(done(&guest), number(6));
}

/// Who takes a host call over is the one that is let in; it can be taken once.
#[test]
fn a_host_call_is_taken_once() {
    let guest = guest(WAT);
    let control = guest.control();
    ask(&guest, CALLER, true, "ask", 1);
    let asked = host_call(&guest);
    assert_eq!(control.claim(asked.id + 1000, OTHER), None);
    assert_eq!(control.claim(asked.id, OTHER), Some(HOST));
    assert_eq!(control.claim(asked.id, HOST), None);
    assert_eq!(ask(&guest, HOST, true, "double", 1).submitted, Submitted::Queued);
    let nested = ask(&guest, OTHER, true, "double", 21);
    assert_eq!(nested.submitted, Submitted::Nested);
    rests(&guest);
    assert_eq!(outcome(&nested), number(42));
    control.reply(asked.id, number(7));
    assert_eq!(control.claim(asked.id, HOST), None);
    assert_eq!(done(&guest), number(7));
}

/// The death of the host ends what waits for it, at every level, and nothing that another serves.
#[test]
fn a_dead_host_ends_its_host_calls() {
    let guest = guest(WAT);
    let control = guest.control();
    ask(&guest, CALLER, true, "ask", 1);
    host_call(&guest);
    let nested = ask(&guest, HOST, true, "ask", 2);
    host_call(&guest);
    control.host_gone(OTHER);
    rests(&guest);
    control.host_gone(HOST);
    assert_eq!(done(&guest).unwrap_err().kind, Kind::HostDown);
    assert_eq!(outcome(&nested).unwrap_err().kind, Kind::HostDown);
    ask(&guest, CALLER, true, "ask", 1);
    let asked = host_call(&guest);
    control.claim(asked.id, OTHER);
    control.host_gone(HOST);
    rests(&guest);
    control.reply(asked.id, number(7));
    assert_eq!(done(&guest), number(7));
}

/// Inside a host function a request that nobody waited for runs once it is awaited; one that waits
/// for the function itself says so.
#[test]
fn an_awaited_request_is_taken_in() {
    let guest = guest(WAT);
    let control = guest.control();
    let outer = ask(&guest, HOST, false, "ask", 1);
    let asked = host_call(&guest);
    let later = ask(&guest, HOST, false, "double", 21);
    assert_eq!(later.submitted, Submitted::Queued);
    // The host call is in its mailbox: nobody is inside.
    assert_eq!(control.wait_for(later.job, HOST), Awaited::Comes);
    control.claim(asked.id, HOST);
    assert_eq!(control.wait_for(later.job, OTHER), Awaited::Comes);
    assert_eq!(control.wait_for(outer.job, HOST), Awaited::Itself);
    assert_eq!(control.wait_for(later.job, HOST), Awaited::Inside);
    rests(&guest);
    assert_eq!(outcome(&later), number(42));
    assert_eq!(control.wait_for(later.job, HOST), Awaited::Comes);
    control.reply(asked.id, number(7));
    assert_eq!(done(&guest), number(7));
}

/// What was taken in before the answer runs before it counts.
#[test]
fn an_answer_waits_for_what_was_asked_before() {
    let guest = guest(WAT);
    ask(&guest, CALLER, true, "ask", 1);
    let asked = host_call(&guest);
    let nested = ask(&guest, HOST, true, "double", 21);
    guest.control().reply(asked.id, number(7));
    assert_eq!(done(&guest), number(7));
    assert_eq!(outcome(&nested), number(42));
}

/// The meter counts calls, host calls and memory.
#[test]
fn usage_is_counted() {
    let guest = guest(WAT);
    let control = guest.control();
    assert_eq!(control.activity(), (Activity::Idle, 0));
    assert_eq!((control.usage().memory, control.usage().calls), (65536, 0));
    ask(&guest, CALLER, true, "ask", 1);
    assert_eq!(control.activity(), (Activity::Idle, 1));
    let asked = host_call(&guest);
    assert_eq!(control.activity(), (Activity::HostCall, 0));
    control.reply(asked.id, number(7));
    assert_eq!(control.activity(), (Activity::Running, 0));
    assert_eq!(done(&guest), number(7));
    let outcome = Mutex::new(None);
    let client = Arc::new(Process { asker: CALLER, host: HOST, waits: true, outcome });
    guest.submit(Job::new(call("grow", &[]).of(&guest), client), None).unwrap();
    assert_eq!(done(&guest), number(1));
    let usage = control.usage();
    assert_eq!((usage.calls, usage.host_calls), (2, 1));
    assert_eq!((usage.memory, usage.peak), (131_072, 131_072));
    guest.destroy();
    assert_eq!(control.activity().0, Activity::Destroyed);
}
