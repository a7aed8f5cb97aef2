//! Whatever is asked of a guest, in whatever order: calls, calls inside host calls, answers right,
//! wrong, late and doubled, memory, interrupts, deadlines, ends. Each job is answered once, nothing
//! panics, and in the end nothing is left.

mod exhaust;
mod party;

use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use wasmtime_beam::counts::{Object, live};
use wasmtime_beam::error::{Class, Error, Kind};
use wasmtime_beam::guest::{
    Activity, Destroyed, Guest, Job, JobId, Reason, Ref, Request, Step, Submitted,
};
use wasmtime_beam::module::{Module, parse_wat};
use wasmtime_beam::options::Runner;
use wasmtime_beam::ticker::{self, Slice};
use wasmtime_beam::value::Value;

pub use self::exhaust::exhaust;
use self::party::Party;
use crate::input::Choices;
use crate::ours::{instance_options, options};

const WAT: &str = r#"(module
  (import "host" "ask" (func $ask (param i32) (result i32)))
  (memory (export "memory") 1 4) (data (i32.const 0) "initial")
  (global (export "g") (mut i32) (i32.const 1))
  (func $one (export "one") (result i32) (i32.const 1))
  (func (export "f") (result funcref) (ref.func $one))
  (func (export "ask") (param i32) (result i32) (call $ask (local.get 0)))
  (func (export "twice") (result i32) (i32.add (call $ask (i32.const 1)) (call $ask (i32.const 2))))
  (func (export "then_loop") (drop (call $ask (i32.const 1))) (loop (br 0)))
  (func (export "loop") (loop (br 0)))
  (func (export "trap") unreachable)
  (func $deep (export "deep") (call $deep))
  (func (export "grow") (result i32) (memory.grow (i32.const 1)))
  (func (export "store") (i32.store (i32.const 70) (i32.const 7))))"#;

const EXPORTS: [&str; 11] =
    ["one", "ask", "twice", "ask", "f", "then_loop", "loop", "trap", "deep", "grow", "another's"];

/// What the guest has not, though it can be asked for.
const OTHER: &str = r#"(module (func (export "another's")))"#;

/// Processes that ask, and one more that only serves.
const ASKERS: usize = 4;

/// Steps of a sequence, at most.
const STEPS: usize = 120;

/// Nothing takes longer to settle.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(data: &[u8]) {
    ticker::start().expect("the ticker");
    let before = counts();
    let mut choices = Choices::new(data);
    let mut world = World::new(&mut choices);
    for _ in 0..STEPS {
        if choices.is_empty() {
            break;
        }
        world.step(&mut choices);
        world.follow_up();
    }
    world.end();
    settle(|| counts() == before, "something is left");
}

fn counts() -> [usize; 5] {
    let pool = module().engine().pool().info();
    let objects = [Object::Guest, Object::Store, Object::Job, Object::Reference].map(live);
    let [guests, stores, jobs, references] = objects;
    [guests, stores, jobs, references, pool.used as usize]
}

fn module() -> &'static Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE.get_or_init(|| compiled(WAT))
}

fn other() -> &'static Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE.get_or_init(|| compiled(OTHER))
}

fn compiled(wat: &str) -> Module {
    let wasm = parse_wat(wat.as_bytes()).expect("a module");
    Module::compile(&wasm, &options(false)).expect("compiled")
}

fn settle(done: impl Fn() -> bool, what: &str) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A job that was asked for.
struct Asked {
    id: JobId,
    party: Arc<Party>,
    /// Its client, where clients take turns, handed on.
    over: bool,
}

/// A guest and what the processes around it know.
struct World {
    guest: Arc<Guest>,
    runner: Runner,
    jobs: Vec<Asked>,
    /// Host calls that somebody was told of.
    calls: Vec<u64>,
    references: Vec<Ref>,
    /// A runner has the guest, which polls when it likes.
    attached: bool,
    /// The runner has no thread yet.
    starting: bool,
    mourners: Vec<Arc<Party>>,
}

impl World {
    fn new(choices: &mut Choices<'_>) -> Self {
        let runner = if choices.chance(2) { Runner::Scheduler } else { Runner::Thread };
        let options = instance_options(module(), runner);
        let guest = Guest::new(module(), &options).expect("a guest");
        guest.instantiate().expect("an instance");
        World::around(guest, runner)
    }

    fn around(guest: Arc<Guest>, runner: Runner) -> Self {
        let (jobs, calls, references, mourners) = (vec![], vec![], vec![], vec![]);
        let (attached, starting) = (false, false);
        World { guest, runner, jobs, calls, references, attached, starting, mourners }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        let control = self.guest.control().clone();
        match choices.below(26) {
            0..=5 => self.submit(choices),
            6..=11 => self.poll(choices),
            12..=14 => self.reply(choices),
            15 if choices.chance(2) => self.bind(choices),
            15 => control.reply(choices.bits(), Ok(vec![])),
            16 => drop(control.claim(self.call(choices), 1 + choices.below(ASKERS + 1) as u64)),
            17 => control.host_gone(1 + choices.below(ASKERS + 1) as u64),
            18 => drop(control.interrupt()),
            19 => drop(control.cancel(self.job(choices), Reason::Interrupt)),
            20 => self.enter(choices),
            21 => drop(control.wait_for(self.job(choices), 1 + choices.below(ASKERS) as u64)),
            22 => self.expire(choices),
            23 => drop(self.guest.inbox().send(choices.some(2000))),
            24 => self.mourn(choices),
            _ if choices.chance(4) => self.destroy(choices),
            _ => drop(self.guest.inbox().close()),
        }
    }

    fn job(&self, choices: &mut Choices<'_>) -> JobId {
        let at = choices.below(self.jobs.len() + 1);
        self.jobs.get(at).map_or(0, |asked| asked.id)
    }

    fn call(&self, choices: &mut Choices<'_>) -> u64 {
        let at = choices.below(self.calls.len() + 1);
        self.calls.get(at).copied().unwrap_or(0)
    }

    fn submit(&mut self, choices: &mut Choices<'_>) {
        let asker = 1 + choices.below(ASKERS) as u64;
        let host = if choices.chance(3) { 1 + ASKERS as u64 } else { asker };
        let party = Party::new(asker, host, !choices.chance(4));
        let job = Job::new(self.request(choices), party.clone());
        let id = job.id();
        let timeouts = [None, None, None, Some(0), Some(1), Some(3_600_000)];
        let timeout = timeouts[choices.below(timeouts.len())].map(Duration::from_millis);
        match self.guest.submit(job, timeout) {
            Ok(submitted) => {
                self.jobs.push(Asked { id, party, over: false });
                if submitted == Submitted::NeedsRunner {
                    self.attach();
                }
            }
            Err(error) => {
                assert_eq!(party.finished(), 0, "refused and answered");
                assert!([Kind::Destroyed, Kind::StackOverflow].contains(&error.kind), "{error}");
            }
        }
    }

    fn request(&self, choices: &mut Choices<'_>) -> Request {
        if let Some(func) = self.references.last().filter(|_| choices.chance(6)) {
            return Request::CallRef { func: func.clone(), args: vec![], fuel: None };
        }
        let export = EXPORTS[choices.below(EXPORTS.len())];
        let args = if export == "ask" { vec![Value::I32(3)] } else { vec![] };
        let module = if export == "another's" { other() } else { module() };
        Request::call(module, export, args).expect("an export")
    }

    /// A runner is about to take the guest.
    fn attach(&mut self) {
        self.attached = true;
        self.starting = self.runner == Runner::Thread;
    }

    /// True when the system has no thread for the runner.
    fn stays_alone(&mut self, choices: &mut Choices<'_>) -> bool {
        let alone = std::mem::take(&mut self.starting) && choices.chance(8);
        if alone {
            self.attached = false;
            let none = Error::new(Class::Limit, Kind::ThreadLimit, "no thread");
            self.guest.abandon(&none);
        }
        alone
    }

    /// A poll by whoever polls, if anybody does.
    fn poll(&mut self, choices: &mut Choices<'_>) {
        let may = match self.runner {
            Runner::Thread => self.attached,
            Runner::Scheduler => self.jobs.iter().any(|asked| {
                !asked.over && self.guest.control().take_turn(asked.id, Waker::noop().clone())
            }),
        };
        if !may || self.stays_alone(choices) {
            return;
        }
        let _slice = Slice::begin();
        match self.guest.poll(&mut Context::from_waker(Waker::noop())) {
            Step::Done(job, outcome) => {
                if let Ok([Value::Ref(func)]) = outcome.as_deref() {
                    self.references.push(func.clone());
                }
                job.finish(outcome);
            }
            Step::Host(call) if choices.chance(12) => {
                self.guest.control().host_down(call.id);
            }
            Step::Host(call) => self.calls.push(call.id),
            Step::Wait => {}
            Step::Idle | Step::Gone => self.attached = false,
        }
    }

    /// Answers a host call, of now or of long ago, rightly or not.
    fn reply(&mut self, choices: &mut Choices<'_>) {
        let call = self.call(choices);
        let answer = match choices.below(6) {
            0 => Ok(vec![]),
            1 => Ok(vec![Value::F64(0)]),
            2 => Err(Error::new(Class::Host, Kind::HostError, "the host failed")),
            _ => Ok(vec![Value::I32(5)]),
        };
        self.guest.control().reply(call, answer);
    }

    /// Lets a job last as long as a host call: here of the same guest, as in a ring of instances.
    fn bind(&self, choices: &mut Choices<'_>) {
        let (asker, job) = (1 + choices.below(ASKERS) as u64, self.job(choices));
        self.guest.control().bind(asker, self.guest.control(), job);
    }

    /// Reads and writes the store, where that may be.
    fn enter(&mut self, choices: &mut Choices<'_>) {
        let (at, bytes) = (choices.bits(), choices.some(64));
        let entered = self.guest.access(|mut view| {
            let wrote = view.write(None, at, bytes);
            let mut back = vec![0; bytes.len()];
            let read = view.read(None, at, &mut back);
            assert_eq!(
                (wrote.is_ok(), &back[..]),
                (read.is_ok(), if wrote.is_ok() { bytes } else { &back })
            );
            view.size(None)
        });
        match entered {
            Ok(size) => assert_eq!(size.bytes as u64, size.pages << 16),
            Err(error) => {
                assert!([Kind::Busy, Kind::Destroyed].contains(&error.kind), "{error}");
            }
        }
        if choices.chance(3) {
            self.references.pop();
        }
    }

    /// The process of a job died, where clients take turns.
    fn expire(&mut self, choices: &mut Choices<'_>) {
        let job = self.job(choices);
        match self.runner {
            Runner::Scheduler => drop(self.guest.expire(job)),
            Runner::Thread => drop(self.guest.control().cancel(job, Reason::Interrupt)),
        }
    }

    /// To the end, however much is queued.
    fn wind_up(&self) {
        while !self.guest.wind_up() {}
    }

    fn mourn(&mut self, choices: &mut Choices<'_>) {
        let destroyed = self.guest.control().activity().0 == Activity::Destroyed;
        if !destroyed || choices.chance(3) {
            return self.wind_up();
        }
        let party = Party::new(9, 9, true);
        if self.guest.control().mourn(party.clone()) {
            self.mourners.push(party);
        }
    }

    fn destroy(&mut self, choices: &mut Choices<'_>) {
        let destroyed = match choices.chance(2) {
            true => self.guest.try_destroy(0),
            false => Some(self.guest.destroy()),
        };
        assert!(destroyed != Some(Destroyed::Done) || self.guest.is_gone());
    }

    /// What clients that take turns do once they know: a job that must stop is polled to its end by
    /// somebody, and one that ended hands the guest on.
    fn follow_up(&mut self) {
        if self.runner == Runner::Thread {
            return;
        }
        for asked in &mut self.jobs {
            if asked.party.take_stopped() {
                self.guest.expire(asked.id);
            }
            if !asked.over && asked.party.finished() > 0 {
                asked.over = true;
                self.guest.pass_on(asked.id);
            }
        }
    }

    /// Destroys the guest, whose runner comes to its end: every job was answered, once.
    fn end(mut self) {
        self.guest.destroy();
        let since = Instant::now();
        while !self.guest.is_gone() {
            assert!(since.elapsed() < PATIENCE, "a destroyed guest lives");
            self.follow_up();
            match self.runner {
                Runner::Thread => self.poll(&mut Choices::new(&[])),
                Runner::Scheduler => self.wind_up(),
            }
        }
        self.follow_up();
        settle(|| self.jobs.iter().all(|asked| asked.party.finished() > 0), "no answer");
        assert!(self.jobs.iter().all(|asked| asked.party.finished() == 1), "two answers");
        let refused =
            self.guest.submit(Job::new(Request::Instantiate, Party::new(1, 1, true)), None);
        assert_eq!(refused.map_err(|error| error.kind).err(), Some(Kind::Destroyed));
        settle(|| self.mourners.iter().all(|party| party.finished() == 1), "a mourner waits");
    }
}
