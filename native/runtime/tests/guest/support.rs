//! Guests from text, a client that records, and a hand-driven poll.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use wasmtime_beam::guest::{
    Client, Guest, HostCall, HostImport, Job, JobId, Outcome, Request, Step, Submitted,
};
use wasmtime_beam::module::{Module, parse_wat};
use wasmtime_beam::options::{
    Allocator, CompileOptions, InstanceOptions, Limits, OptLevel, PoolOptions, Runner,
};
use wasmtime_beam::value::Value;

pub const NO_LIMITS: Limits = Limits {
    memory: None,
    total_memory: None,
    tables: None,
    table_elements: None,
    instances: None,
};

pub fn pooled() -> CompileOptions {
    let pool = PoolOptions {
        instances: 64,
        max_memory: 16 << 20,
        keep_resident: 1 << 20,
        core_instances: 64,
        tables: 64,
        memories: 64,
        verify: true,
    };
    CompileOptions { allocator: Allocator::Pooling(pool), ..on_demand() }
}

pub fn on_demand() -> CompileOptions {
    CompileOptions {
        fuel: false,
        opt_level: OptLevel::Speed,
        proposals: Vec::new(),
        allocator: Allocator::OnDemand,
    }
}

pub fn module(wat: &str) -> Module {
    compile(wat, &pooled())
}

/// A module in a pool that no other test uses.
pub fn module_in_own_pool(wat: &str) -> Module {
    static POOLS: AtomicU32 = AtomicU32::new(65);
    let Allocator::Pooling(mut pool) = pooled().allocator else { unreachable!() };
    pool.tables = POOLS.fetch_add(1, Ordering::Relaxed);
    compile(wat, &CompileOptions { allocator: Allocator::Pooling(pool), ..pooled() })
}

pub fn compile(wat: &str, options: &CompileOptions) -> Module {
    wasmtime_beam::ticker::start().unwrap();
    Module::compile(&parse_wat(wat.as_bytes()).unwrap(), options).unwrap()
}

/// Options that let the host serve every import of `module`.
pub fn options(module: &Module) -> InstanceOptions {
    let imports = module.imports().into_iter().map(|import| (import.module, import.name)).collect();
    InstanceOptions {
        imports,
        wasi: None,
        limits: NO_LIMITS,
        host_timeout: None,
        runner: Runner::Thread,
        inbox_limit: 1 << 20,
    }
}

pub fn guest(wat: &str) -> Arc<Guest> {
    guest_of(&module(wat))
}

pub fn guest_of(module: &Module) -> Arc<Guest> {
    let guest = Guest::new(module, &options(module)).unwrap();
    guest.instantiate().unwrap();
    guest
}

/// Records what it is told.
#[derive(Default)]
pub struct Recorder {
    state: Mutex<Recorded>,
    changed: Condvar,
}

#[derive(Default)]
pub struct Recorded {
    pub calls: Vec<HostCall>,
    pub outcomes: Vec<(JobId, Outcome)>,
}

impl Client for Recorder {
    fn host_call(&self, call: HostCall, _: &HostImport) -> bool {
        self.state.lock().unwrap().calls.push(call);
        self.changed.notify_all();
        true
    }

    fn asker(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    fn finish(&self, job: JobId, outcome: Outcome) {
        self.state.lock().unwrap().outcomes.push((job, outcome));
        self.changed.notify_all();
    }
}

impl Recorder {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits until `done` holds, at most ten seconds.
    pub fn wait<R>(&self, mut done: impl FnMut(&mut Recorded) -> Option<R>) -> R {
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(result) = done(&mut state) {
                return result;
            }
            let waited = self.changed.wait_timeout(state, Duration::from_secs(10)).unwrap();
            assert!(!waited.1.timed_out(), "nothing happened");
            state = waited.0;
        }
    }

    pub fn outcome(&self) -> Outcome {
        self.wait(|state| state.outcomes.pop().map(|(_, outcome)| outcome))
    }

    pub fn call(&self) -> HostCall {
        self.wait(|state| state.calls.pop())
    }

    pub fn outcomes(&self) -> usize {
        self.state.lock().unwrap().outcomes.len()
    }
}

/// What a guest is asked to do.
pub trait Asked {
    fn of(self, guest: &Guest) -> Request;
}

impl Asked for Request {
    fn of(self, _: &Guest) -> Request {
        self
    }
}

/// A call of an export, by its name.
pub struct Call {
    export: String,
    args: Vec<Value>,
}

impl Asked for Call {
    fn of(self, guest: &Guest) -> Request {
        Request::call(guest.module(), &self.export, self.args).unwrap()
    }
}

pub fn call(export: &str, args: &[Value]) -> Call {
    Call { export: export.into(), args: args.to_vec() }
}

/// Queues a call; the caller polls.
pub fn submit(guest: &Guest, client: &Arc<Recorder>, request: impl Asked) -> JobId {
    submit_within(guest, client, request, None)
}

pub fn submit_within(
    guest: &Guest,
    client: &Arc<Recorder>,
    request: impl Asked,
    timeout: Option<Duration>,
) -> JobId {
    let job = Job::new(request.of(guest), client.clone());
    let id = job.id();
    guest.submit(job, timeout).unwrap();
    id
}

/// Queues a call and gives the guest to the thread runner.
pub fn start(guest: &Arc<Guest>, client: &Arc<Recorder>, request: impl Asked) -> JobId {
    start_within(guest, client, request, None)
}

pub fn start_within(
    guest: &Arc<Guest>,
    client: &Arc<Recorder>,
    request: impl Asked,
    timeout: Option<Duration>,
) -> JobId {
    let job = Job::new(request.of(guest), client.clone());
    let id = job.id();
    if guest.submit(job, timeout).unwrap() == Submitted::NeedsRunner {
        wasmtime_beam::runner::thread::run(guest.clone()).unwrap();
    }
    id
}

pub fn poll(guest: &Guest) -> Step {
    guest.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a guest that comes to wait for its host. More than once: what ends a run in another test makes
/// every guest of the engine yield.
pub fn rests(guest: &Guest) {
    for _ in 0..10 {
        assert!(matches!(poll(guest), Step::Wait));
    }
}

/// Polls until something other than a wait comes.
pub fn step(guest: &Guest) -> Step {
    for _ in 0..1_000_000 {
        match poll(guest) {
            Step::Wait => std::thread::yield_now(),
            step => return step,
        }
    }
    panic!("the guest waits for ever")
}

pub fn done(guest: &Guest) -> Outcome {
    match step(guest) {
        Step::Done(_, outcome) => outcome,
        other => panic!("not done: {}", name(&other)),
    }
}

pub fn host_call(guest: &Guest) -> HostCall {
    match step(guest) {
        Step::Host(call) => call,
        other => panic!("no host call: {}", name(&other)),
    }
}

pub fn name(step: &Step) -> &'static str {
    match step {
        Step::Done(..) => "done",
        Step::Host(..) => "host",
        Step::Wait => "wait",
        Step::Idle => "idle",
        Step::Gone => "gone",
    }
}
