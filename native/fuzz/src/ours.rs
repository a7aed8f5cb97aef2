//! A guest of ours, polled by hand.

use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;
use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::guest::{
    Client, Destroyed, Guest, HostCall, HostImport, Job, JobId, Outcome as Answer, Request, Step,
    View,
};
use wasmtime_beam::module::{ExternKind, Module};
use wasmtime_beam::options::{
    Allocator, CompileOptions, InstanceOptions, Limits, OptLevel, PoolOptions, Proposal, Runner,
};
use wasmtime_beam::value::Value;

use crate::host::{answer, told};
use crate::plain::{MAX_MEMORY, Outcome, memory_state, table_state};

/// What engines are made of: all proposals, a pool that looks at each memory it restores.
pub fn options(fuel: bool) -> CompileOptions {
    use Proposal::*;
    let mut proposals = [
        FunctionReferences,
        Gc,
        Exceptions,
        WideArithmetic,
        CustomPageSizes,
        Memory64,
        RelaxedSimdDeterministic,
    ]
    .map(|proposal| (proposal, true))
    .to_vec();
    proposals.sort();
    let pool = PoolOptions {
        instances: 16,
        max_memory: MAX_MEMORY,
        // Less than what modules can dirty, so that both ways of restoring are taken.
        keep_resident: 1 << 20,
        core_instances: 16,
        tables: 64,
        memories: 64,
        verify: true,
    };
    let allocator = Allocator::Pooling(pool);
    CompileOptions { fuel, opt_level: OptLevel::None, proposals, allocator }
}

/// Every import is the host's.
pub fn instance_options(module: &Module, runner: Runner) -> InstanceOptions {
    let imports = module.imports().into_iter().map(|import| (import.module, import.name)).collect();
    let limits = Limits {
        memory: Some(MAX_MEMORY),
        total_memory: None,
        tables: None,
        table_elements: None,
        instances: None,
    };
    InstanceOptions { imports, wasi: None, limits, host_timeout: None, runner, inbox_limit: 4096 }
}

/// Holds the one answer of a call.
#[derive(Default)]
struct Asker(Mutex<Option<Answer>>);

impl Client for Asker {
    fn host_call(&self, _: HostCall, _: &HostImport) -> bool {
        true
    }

    fn asker(&self) -> u64 {
        1
    }

    fn finish(&self, _: JobId, outcome: Answer) {
        assert!(self.0.lock().replace(outcome).is_none(), "a job was answered twice");
    }
}

/// An instance.
pub struct Ours {
    guest: Arc<Guest>,
    module: Module,
}

impl Ours {
    /// An instance, or why there is none.
    pub fn new(module: &Module) -> Result<Self> {
        let guest = Guest::new(module, &instance_options(module, Runner::Thread))?;
        let made = Ours { guest, module: module.clone() };
        made.run(Request::Instantiate).map(|_| made)
    }

    /// Calls an export with so much fuel; `None` is none, of a module that counts none.
    pub fn call(&self, name: &str, args: &[Value], fuel: Option<u64>) -> Outcome {
        let function = self.module.function(name).expect("an export").clone();
        match self.run(Request::Call { function, args: args.to_vec(), fuel }) {
            Ok(values) => Ok(told(&values)),
            Err(error) => Err(failure(&error)),
        }
    }

    /// As `call`, of a module that counts no fuel, with the values themselves.
    pub fn values(&self, name: &str, args: &[Value]) -> Answer {
        self.run(Request::call(&self.module, name, args.to_vec())?)
    }

    fn run(&self, request: Request) -> Answer {
        let asker = Arc::new(Asker::default());
        self.guest.submit(Job::new(request, asker.clone()), None)?;
        while asker.0.lock().is_none() {
            self.step();
        }
        // Nothing is queued: the runner is not needed any more.
        while !matches!(self.poll(), Step::Idle | Step::Gone) {}
        asker.0.lock().take().expect("an answer")
    }

    fn poll(&self) -> Step {
        self.guest.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn step(&self) {
        match self.poll() {
            Step::Done(job, outcome) => job.finish(outcome),
            Step::Host(call) => {
                let control = self.guest.control();
                let import = control.parked_import(call.id).expect("a parked host call");
                let values = answer(&import.name, &call.args, &import.signature.results);
                control.reply(call.id, Ok(values));
            }
            Step::Wait => {}
            Step::Idle | Step::Gone => panic!("a guest left a job unanswered"),
        }
    }

    pub fn fuel(&self) -> u64 {
        self.access(|view| view.fuel())
    }

    /// Enters the store.
    pub fn access<R>(&self, f: impl FnOnce(&mut View<'_>) -> Result<R>) -> R {
        self.guest.access(|mut view| f(&mut view)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// All that its exports show.
    pub fn state(&self) -> Vec<String> {
        self.state_of(&self.module)
    }

    /// All that the exports show which another module has too.
    pub fn state_of(&self, module: &Module) -> Vec<String> {
        self.access(|view| {
            let mut seen = Vec::new();
            for export in module.exports() {
                let name = &export.name;
                let state = match export.kind {
                    ExternKind::Memory => memory(view, name)?,
                    ExternKind::Global => told(&[view.global_get(name)?]).concat(),
                    ExternKind::Table => table(view, name)?,
                    _ => continue,
                };
                seen.push(format!("{name} {state}"));
            }
            Ok(seen)
        })
    }

    /// Ends it; its memory is restored for the next.
    pub fn destroy(self) {
        assert!(self.guest.destroy() == Destroyed::Done, "an idle guest has a runner");
    }
}

fn memory(view: &mut View<'_>, name: &str) -> Result<String> {
    let size = view.size(Some(name))?;
    let mut bytes = vec![0; size.bytes];
    view.read(Some(name), 0, &mut bytes)?;
    Ok(memory_state(size.pages, &bytes))
}

fn table(view: &mut View<'_>, name: &str) -> Result<String> {
    let size = view.table_size(name)?;
    let null = |at| Ok(view.table_get(name, at)? == Value::Null);
    Ok(table_state(&(0..size).map(null).collect::<Result<Vec<_>>>()?))
}

/// Why something failed, by the names that both sides have.
pub fn failure(error: &Error) -> String {
    let name = match (error.class, error.kind) {
        (Class::Trap, kind) => kind.as_str(),
        (Class::Limit, Kind::OutOfMemory | Kind::MemoryLimit) => "limit",
        (_, Kind::Panic) => panic!("{error}"),
        _ => "another",
    };
    name.into()
}
