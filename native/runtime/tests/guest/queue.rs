//! Many jobs of one guest. What others ask for costs nobody anything, and nobody waits for its lock.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use wasmtime_beam::Kind;
use wasmtime_beam::guest::{
    Activity, Client, Guest, HostCall, HostImport, Job, JobId, Outcome, Reason, Step, Submitted,
};
use wasmtime_beam::value::Value;

use crate::support::{Asked, Recorder, call, done, guest, host_call, rests, step, submit};

const WAT: &str = r#"(module
  (import "host" "ask" (func $ask (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "ask") (param i32) (result i32) (call $ask (local.get 0)))
  (func (export "same") (param i32) (result i32) (local.get 0)))"#;

const MANY: usize = 1000;

/// A process that counts how often it is looked at, and looks at the guest when its job ends.
struct Process {
    guest: Weak<Guest>,
    number: u64,
    looks: Arc<AtomicUsize>,
    ended: Mutex<Vec<(JobId, Outcome)>>,
}

impl Process {
    fn new(guest: &Arc<Guest>, number: u64) -> Arc<Self> {
        let (looks, ended) = (Arc::default(), Mutex::default());
        Arc::new(Process { guest: Arc::downgrade(guest), number, looks, ended })
    }

    fn submit(self: &Arc<Self>, guest: &Guest, export: &str, arg: i32) -> (JobId, Submitted) {
        let job = Job::new(call(export, &[Value::I32(arg)]).of(guest), self.clone());
        let id = job.id();
        (id, guest.submit(job, None).unwrap())
    }

    fn fill(self: &Arc<Self>, guest: &Guest) -> Vec<JobId> {
        (0..MANY).map(|at| self.submit(guest, "same", at as i32).0).collect()
    }

    /// How every job ended that did.
    fn kinds(&self) -> Vec<(JobId, Kind)> {
        let ended = self.ended.lock();
        ended.iter().map(|(job, outcome)| (*job, outcome.as_ref().unwrap_err().kind)).collect()
    }
}

impl Client for Process {
    fn host_call(&self, _: HostCall, _: &HostImport) -> bool {
        true
    }

    fn asker(&self) -> u64 {
        self.looks.fetch_add(1, Relaxed);
        self.number
    }

    fn finish(&self, job: JobId, outcome: Outcome) {
        // Whoever holds the guest's lock here would wait for itself.
        self.guest.upgrade().map(|guest| guest.control().activity());
        self.ended.lock().push((job, outcome));
    }
}

/// `f` on a thread of its own: a test that hangs fails.
fn in_time<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(f()));
    receiver.recv_timeout(Duration::from_secs(30)).expect("an answer")
}

fn destroyed(jobs: &[JobId]) -> Vec<(JobId, Kind)> {
    jobs.iter().map(|job| (*job, Kind::Destroyed)).collect()
}

/// A host call asks nobody in the queue who it is, whether it takes a job in or not.
#[test]
fn a_host_call_looks_at_nobody_who_queues() {
    let guest = guest(WAT);
    let (host, others) = (Process::new(&guest, 1), Process::new(&guest, 2));
    host.submit(&guest, "ask", 7);
    others.fill(&guest);
    let mine = host.submit(&guest, "same", 5).0;
    others.fill(&guest);
    let looks = others.looks.load(Relaxed);
    let asked = host_call(&guest);
    rests(&guest);
    assert_eq!(host.ended.lock().as_slice(), &[(mine, Ok(vec![Value::I32(5)]))]);
    guest.control().reply(asked.id, Ok(vec![Value::I32(7)]));
    assert_eq!(done(&guest), Ok(vec![Value::I32(7)]));
    let looked = others.looks.load(Relaxed) - looks;
    assert!(looked < 10, "{looked} looks at {MANY} who queue");
}

/// Jobs taken out of anywhere leave the others in their order.
#[test]
fn what_is_taken_out_leaves_the_order() {
    let guest = guest(WAT);
    let others = Process::new(&guest, 2);
    let jobs = others.fill(&guest);
    let (gone, left): (Vec<_>, Vec<_>) =
        jobs.iter().enumerate().partition(|(at, _)| at % 3 == 0 || (400..600).contains(at));
    for (_, job) in gone.iter().rev() {
        assert!(guest.control().cancel(**job, Reason::Interrupt));
        assert!(!guest.control().cancel(**job, Reason::Interrupt));
    }
    assert_eq!(guest.control().activity(), (Activity::Idle, left.len()));
    for (at, job) in left {
        let Step::Done(next, outcome) = step(&guest) else { panic!("not done") };
        assert_eq!((next.id(), &outcome), (*job, &Ok(vec![Value::I32(at as i32)])));
        next.finish(outcome);
    }
    assert!(matches!(step(&guest), Step::Idle));
    assert_eq!(others.ended.lock().len(), MANY);
}

/// Whoever destroys a guest answers nobody: its runner does, step by step, and then the store goes.
#[test]
fn the_runner_answers_the_queue_of_a_destroyed_guest() {
    in_time(|| {
        let guest = guest(WAT);
        let others = Process::new(&guest, 2);
        let jobs = others.fill(&guest);
        guest.destroy();
        assert_eq!(others.ended.lock().len(), 0);
        assert_eq!(guest.control().activity(), (Activity::Destroyed, MANY));
        assert!(guest.control().cancel(jobs[1], Reason::Interrupt));
        for _ in 1..MANY {
            let Step::Done(job, outcome) = step(&guest) else { panic!("not done") };
            job.finish(outcome);
        }
        assert!(matches!(step(&guest), Step::Gone));
        let mut expected = destroyed(&jobs);
        expected.remove(1);
        expected.insert(0, (jobs[1], Kind::Interrupt));
        assert_eq!(others.kinds(), expected);
    });
}

/// Where no runner comes, the queue is answered some jobs at a time, and outside of the lock.
#[test]
fn a_guest_is_wound_up_in_turns() {
    in_time(|| {
        let guest = guest(WAT);
        let others = Process::new(&guest, 2);
        let jobs = others.fill(&guest);
        guest.destroy();
        let turns = (1..).find(|_| guest.wind_up()).unwrap();
        assert!((2..MANY).contains(&turns), "{turns} turns");
        assert!(guest.is_gone());
        assert_eq!(others.kinds(), destroyed(&jobs));
    });
}

/// What queued behind an instantiation that failed is answered, too.
#[test]
fn a_guest_that_was_not_made_answers_its_queue() {
    let wat = r#"(module (memory (export "memory") 1) (start 0) (func unreachable)
      (func (export "same") (param i32) (result i32) (local.get 0)))"#;
    in_time(|| {
        let module = crate::support::module(wat);
        let guest = Guest::new(&module, &crate::support::options(&module)).unwrap();
        let (client, others) = (Recorder::new(), Process::new(&guest, 2));
        submit(&guest, &client, wasmtime_beam::guest::Request::Instantiate);
        let jobs = others.fill(&guest);
        assert_eq!(done(&guest).unwrap_err().kind, Kind::Unreachable);
        for job in &jobs {
            let Step::Done(next, outcome) = step(&guest) else { panic!("not done") };
            assert_eq!(next.id(), *job);
            next.finish(outcome);
        }
        assert!(matches!(step(&guest), Step::Gone));
        assert_eq!(others.kinds(), destroyed(&jobs));
    });
}
