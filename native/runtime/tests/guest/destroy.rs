//! The end of a guest, in every state.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use wasmtime_beam::guest::{Destroyed, Guest, Job, Step};
use wasmtime_beam::module::Module;
use wasmtime_beam::options::{InstanceOptions, Runner};
use wasmtime_beam::value::Value;
use wasmtime_beam::{Class, Error, Kind};

use crate::support::{
    Asked, Recorder, call, done, guest, guest_of, host_call, module, module_in_own_pool, options,
    poll, start, submit,
};

const WAT: &str = r#"(module
  (import "host" "ask" (func $ask))
  (memory (export "memory") 1)
  (func (export "one") (result i32) (i32.const 1))
  (func (export "ask") (call $ask))
  (func (export "loop") (loop (br 0))))"#;

fn used(guest: &Guest) -> u64 {
    guest.module().engine().pool().info().used
}

/// An idle guest is gone at once, twice is fine, and its slot is free.
#[test]
fn an_idle_guest_goes_at_once() {
    let guest = guest_of(&module_in_own_pool(WAT));
    assert_eq!(used(&guest), 1);
    assert_eq!(guest.destroy(), Destroyed::Done);
    assert_eq!(guest.destroy(), Destroyed::Done);
    assert!(guest.is_gone());
    assert_eq!(used(&guest), 0);
    let job = Job::new(call("one", &[]).of(&guest), Recorder::new());
    assert_eq!(guest.submit(job, None).unwrap_err().kind, Kind::Destroyed);
    assert_eq!(guest.access(|mut view| view.size(None)).unwrap_err().kind, Kind::Destroyed);
}

/// What takes too long to restore in a hurry is left to who may take the time; until then nobody is told
/// that it is done.
#[test]
fn a_restore_that_is_left_is_not_forgotten() {
    let guest = guest_of(&module_in_own_pool(WAT));
    for _ in 0..3 {
        assert_eq!(guest.try_destroy(0), None);
        assert!(!guest.is_gone());
        assert_eq!(used(&guest), 1);
    }
    assert_eq!(guest.destroy(), Destroyed::Done);
    assert_eq!(guest.try_destroy(0), Some(Destroyed::Done));
    assert_eq!(used(&guest), 0);
    let guest = guest_of(guest.module());
    assert_eq!(guest.try_destroy(0), None);
    assert_eq!(guest.try_destroy(usize::MAX), Some(Destroyed::Done));
    assert_eq!(used(&guest), 0);
}

/// Several who destroy at once are all told when the slot is free, not before.
#[test]
fn everybody_waits_for_the_slot() {
    let module = module_in_own_pool(WAT);
    for _ in 0..500 {
        let guest = guest_of(&module);
        let begin = Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    begin.wait();
                    assert_eq!(guest.destroy(), Destroyed::Done);
                    assert_eq!(used(&guest), 0);
                });
            }
            begin.wait();
            while guest.try_destroy(usize::MAX).is_none() {}
            assert_eq!(used(&guest), 0);
        });
    }
}

/// A parked guest goes at its next poll; everybody is answered once.
#[test]
fn a_parked_guest_goes_with_its_queue() {
    let (guest, client, mourner) = (guest(WAT), Recorder::new(), Recorder::new());
    submit(&guest, &Recorder::new(), call("ask", &[]));
    host_call(&guest);
    submit(&guest, &client, call("one", &[]));
    assert_eq!(guest.destroy(), Destroyed::Later);
    assert_eq!(guest.destroy(), Destroyed::Later);
    assert!(guest.control().mourn(mourner.clone()));
    assert!(guest.control().mourn(mourner.clone()));
    assert_eq!(done(&guest).unwrap_err().kind, Kind::Destroyed);
    let Step::Done(queued, outcome) = poll(&guest) else { panic!("not done") };
    queued.finish(outcome);
    let error = client.outcome().unwrap_err();
    assert_eq!((error.class, error.kind), (Class::Call, Kind::Destroyed));
    assert_eq!(mourner.outcomes(), 0);
    assert!(matches!(poll(&guest), Step::Gone));
    assert_eq!(mourner.outcomes(), 2);
    assert!(!guest.control().mourn(mourner.clone()));
}

/// A loop on a thread ends, and who destroyed it is told when the store is gone.
#[test]
fn a_running_guest_goes_soon() {
    let (guest, client, mourner) = (guest(WAT), Recorder::new(), Recorder::new());
    start(&guest, &client, call("loop", &[]));
    std::thread::sleep(std::time::Duration::from_millis(2));
    if guest.destroy() == Destroyed::Later && guest.control().mourn(mourner.clone()) {
        assert_eq!(mourner.outcome(), Ok(vec![]));
    }
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Destroyed);
    assert!(guest.is_gone());
}

/// A start section runs as a job, host calls included.
#[test]
fn a_start_section_may_call_the_host() {
    let module = crate::support::module(
        r#"(module (import "host" "ask" (func $ask)) (memory (export "memory") 1) (start $ask)
             (func (export "one") (result i32) (i32.const 1)))"#,
    );
    assert!(module.facts().has_start);
    let guest = Guest::new(&module, &crate::support::options(&module)).unwrap();
    let client = Recorder::new();
    submit(&guest, &client, wasmtime_beam::guest::Request::Instantiate);
    let asked = host_call(&guest);
    guest.control().reply(asked.id, Ok(vec![]));
    assert_eq!(done(&guest), Ok(vec![]));
    submit(&guest, &client, call("one", &[]));
    assert!(done(&guest).is_ok());
}

/// A guest whose instantiation traps leaves nothing behind.
#[test]
fn a_failed_instantiation_leaves_nothing() {
    let module = module_in_own_pool(
        r#"(module (memory (export "memory") 1) (data (i32.const 65535) "too long"))"#,
    );
    let pool: &Arc<_> = module.engine().pool();
    let guest = Guest::new(&module, &crate::support::options(&module)).unwrap();
    assert_eq!(guest.instantiate().unwrap_err().kind, Kind::MemoryOutOfBounds);
    assert!(guest.is_gone());
    drop(guest);
    assert_eq!(pool.info().used, 0);
}

/// No thread can be had for a guest that is destroyed meanwhile: it goes all the same, and who waits
/// for its end is told.
#[test]
fn a_guest_without_a_runner_goes() {
    let guest = guest_of(&module_in_own_pool(WAT));
    let (client, mourner) = (Recorder::new(), Recorder::new());
    submit(&guest, &client, call("one", &[]));
    assert_eq!(guest.destroy(), Destroyed::Later);
    assert!(guest.control().mourn(mourner.clone()));
    guest.abandon(&Error::new(Class::Limit, Kind::ThreadLimit, "no thread"));
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Destroyed);
    assert_eq!(mourner.outcome(), Ok(vec![]));
    assert!(guest.is_gone());
    assert_eq!(used(&guest), 0);
}

/// Without a thread the queue is answered, and the next job asks for one again.
#[test]
fn a_guest_without_a_runner_asks_again() {
    let (guest, client) = (guest(WAT), Recorder::new());
    submit(&guest, &client, call("one", &[]));
    guest.abandon(&Error::new(Class::Limit, Kind::ThreadLimit, "no thread"));
    assert_eq!(client.outcome().unwrap_err().kind, Kind::ThreadLimit);
    start(&guest, &client, call("one", &[]));
    assert_eq!(client.outcome(), Ok(vec![Value::I32(1)]));
    assert!(guest.destroy() == Destroyed::Done || guest.control().mourn(client));
}

/// A guest whose clients poll in turns.
fn guest_in_turns(module: &Module) -> Arc<Guest> {
    let options = InstanceOptions { runner: Runner::Scheduler, ..options(module) };
    let guest = Guest::new(module, &options).unwrap();
    guest.instantiate().unwrap();
    guest
}

/// Whoever polls holds the store for a moment after the job has ended, while another one hands the
/// turn on: one of both does the last poll.
#[test]
fn the_last_poll_is_done_by_one_of_two() {
    let module = module(WAT);
    for _ in 0..1_000 {
        let (guest, client, mourner) = (guest_in_turns(&module), Recorder::new(), Recorder::new());
        let job = submit(&guest, &client, call("ask", &[]));
        host_call(&guest);
        assert_eq!(guest.destroy(), Destroyed::Later);
        assert!(guest.control().mourn(mourner.clone()));
        let looks = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while guest.control().is_running(job) {
                    looks.store(true, Relaxed);
                }
                guest.pass_on(job);
            });
            while !looks.load(Relaxed) {
                std::thread::yield_now();
            }
            assert_eq!(done(&guest).unwrap_err().kind, Kind::Destroyed);
            guest.pass_on(job);
        });
        assert_eq!(mourner.outcome(), Ok(vec![]));
        assert!(guest.is_gone());
    }
}

/// The last poll of a guest whose memories may take long to restore is left to who may take the time.
#[test]
fn the_last_poll_of_a_large_guest_waits() {
    for (pages, at_once) in [(16, true), (17, false)] {
        let wat = WAT.replace(r#""memory") 1)"#, &format!(r#""memory") {pages})"#));
        let (guest, mourner) = (guest_in_turns(&module_in_own_pool(&wat)), Recorder::new());
        let job = submit(&guest, &Recorder::new(), call("ask", &[]));
        host_call(&guest);
        assert_eq!(guest.destroy(), Destroyed::Later);
        assert!(guest.control().mourn(mourner.clone()));
        assert_eq!(done(&guest).unwrap_err().kind, Kind::Destroyed);
        assert_eq!(guest.pass_on(job), at_once);
        assert_eq!(guest.is_gone(), at_once);
        assert_eq!(mourner.outcomes(), usize::from(at_once));
        assert!(guest.wind_up());
        assert_eq!(mourner.outcome(), Ok(vec![]));
        assert_eq!(used(&guest), 0);
    }
}

/// A visitor keeps everybody out; when it leaves it does what they could not.
#[test]
fn the_last_poll_is_done_by_a_visitor() {
    let (guest, client, mourner) = (guest_in_turns(&module(WAT)), Recorder::new(), Recorder::new());
    let visit = guest.access(|_| {
        submit(&guest, &client, call("one", &[]));
        assert!(matches!(poll(&guest), Step::Wait));
        assert_eq!(guest.destroy(), Destroyed::Later);
        assert!(guest.control().mourn(mourner.clone()));
        assert!(guest.wind_up());
        Ok(())
    });
    assert_eq!(visit, Ok(()));
    assert_eq!(client.outcome().unwrap_err().kind, Kind::Destroyed);
    assert_eq!(mourner.outcome(), Ok(vec![]));
    assert!(guest.is_gone());
}
