//! Who destroys an instance waits for the restore of its memory only where no processor is free for
//! that. Alone in its process, for guests of other tests would take processors.

#[path = "guest/support.rs"]
#[allow(dead_code)]
mod support;

use std::sync::Arc;

use support::{Recorder, call, module_in_own_pool, options, start};
use wasmtime_beam::guest::{Destroyed, Guest, Reason};
use wasmtime_beam::memory::start_restorer;
use wasmtime_beam::module::Module;
use wasmtime_beam::options::{InstanceOptions, Runner};
use wasmtime_beam::ticker::Slice;

const WAT: &str = r#"(module (memory (export "memory") 4) (func (export "loop") (loop (br 0))))"#;

fn guest_of(module: &Module, runner: Runner) -> Arc<Guest> {
    let guest = Guest::new(module, &InstanceOptions { runner, ..options(module) }).unwrap();
    guest.instantiate().unwrap();
    guest
}

#[test]
fn a_free_processor_restores() {
    start_restorer().unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    let module = module_in_own_pool(WAT);
    let info = || module.engine().pool().info();
    let guests: Vec<_> = (0..processors).map(|_| guest_of(&module, Runner::Thread)).collect();
    let others = processors as u64;

    // No time to restore anything: somebody else does.
    for _ in 0..100 {
        let guest = guest_of(&module, Runner::Scheduler);
        assert_eq!(guest.try_destroy(0), Some(Destroyed::Done));
        assert!(guest.is_gone());
        assert_eq!(info().used, others);
        while info().restoring > 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!((info().resets, info().verify_failures), (100, 0));

    // Whoever destroys on a scheduler does that in a slice, and the thread of the next guest needs a
    // processor, too.
    let guest = guest_of(&module, Runner::Thread);
    let slice = Slice::begin();
    assert_eq!(guest.try_destroy(0), (processors > 2).then_some(Destroyed::Done));
    drop(slice);
    assert!(processors > 2 || guest.destroy() == Destroyed::Done);
    while info().restoring > 0 {
        std::thread::yield_now();
    }

    // Every processor has a guest to run: it is left to who may take the time.
    let client = Recorder::new();
    let run = |guest| (guest, start(guest, &client, call("loop", &[])));
    let jobs: Vec<_> = guests.iter().map(run).collect();
    let guest = guest_of(&module, Runner::Scheduler);
    while !jobs.iter().all(|(guest, job)| guest.control().is_running(*job)) {
        std::thread::yield_now();
    }
    assert_eq!(guest.try_destroy(0), None);
    assert_eq!(info().used, others + 1);
    assert_eq!(guest.destroy(), Destroyed::Done);
    assert_eq!((info().used, info().restoring, info().resets), (others, 0, 102));
    for (guest, job) in jobs {
        guest.control().cancel(job, Reason::Interrupt);
    }
}
