//! Single operations of a trivial module without Erlang: make an instance, call it, do both and end
//! it. `plain` rows are a store of their own over this project's memory; `core` rows are the guests
//! that the binding polls. Rule: the module is the one that the Erlang side compiles.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use wasmtime::{Instance, Linker, Module, Result, Store, bail};
use wasmtime_beam::engine::Engine;
use wasmtime_beam::guest::{
    self, Client, HostCall, HostImport, Job, JobId, Outcome, Request, Step,
};
use wasmtime_beam::memory::{MemoryData, Permit, extract};
use wasmtime_beam::module::{self, parse_wat};
use wasmtime_beam::options::{InstanceOptions, Limits, Runner};
use wasmtime_beam::template::Template;
use wasmtime_beam::value::Value;

use crate::own::{Guest, compile_options};
use crate::request::NEVER;
use crate::{Named, Row};

const WAT: &str = include_str!("../../../bench/trivial.wat");

/// What is called, and what it must answer.
const EXPORT: &str = "add";
const ARGS: (i32, i32) = (20, 22);
const SUM: i32 = 42;

/// What of an instance's life is timed.
#[derive(Clone, Copy)]
enum Operation {
    Instantiate,
    Call,
    Cycle,
}

const OPERATIONS: [(&str, Operation); 3] = [
    ("instantiate", Operation::Instantiate),
    ("call", Operation::Call),
    ("cycle", Operation::Cycle),
];

/// A row for each operation, plain and over the guest core: `plain call`.
pub fn rows() -> Result<Vec<Named>> {
    let wasm = parse_wat(WAT.as_bytes())?;
    let mut rows = Vec::new();
    for (name, operation) in OPERATIONS {
        let plain = Plain { live: None, guest: plain(&wasm)?, operation };
        rows.push(Named { name: format!("plain {name}"), row: Box::new(plain) });
        let core = Core { live: None, template: template(&wasm)?, operation };
        rows.push(Named { name: format!("core {name}"), row: Box::new(core) });
    }
    Ok(rows)
}

/// One way to have instances.
trait Ways {
    type Live;
    fn make(&mut self) -> Result<Self::Live>;
    fn call(&mut self, live: &mut Self::Live) -> Result<()>;
    fn kept(&mut self) -> (&mut Option<Self::Live>, Operation);
}

impl<W: Ways> Row for W {
    fn request(&mut self) -> Result<Duration> {
        match self.kept().1 {
            Operation::Instantiate => {
                let start = Instant::now();
                let live = self.make()?;
                let duration = start.elapsed();
                drop(live);
                Ok(duration)
            }
            Operation::Call => {
                let mut live = match self.kept().0.take() {
                    Some(live) => live,
                    None => self.make()?,
                };
                let start = Instant::now();
                self.call(&mut live)?;
                let duration = start.elapsed();
                *self.kept().0 = Some(live);
                Ok(duration)
            }
            Operation::Cycle => {
                let start = Instant::now();
                let mut live = self.make()?;
                self.call(&mut live)?;
                drop(live);
                Ok(start.elapsed())
            }
        }
    }
}

struct Plain {
    /// The instance that calls go to. Before the guest, whose engine it needs.
    live: Option<(Store<()>, Instance, Permit)>,
    guest: Guest<()>,
    operation: Operation,
}

fn plain(wasm: &[u8]) -> Result<Guest<()>> {
    let engine = Engine::get(&compile_options())?;
    let extracted = extract(wasm)?;
    let module = Module::new(engine.wasmtime(), &extracted.wasm)?;
    let memories = extracted.memories.iter().map(MemoryData::plan).collect::<Result<_, _>>()?;
    let pre = Linker::new(engine.wasmtime()).instantiate_pre(&module)?;
    Ok(Guest::new(pre, memories, engine))
}

impl Ways for Plain {
    type Live = (Store<()>, Instance, Permit);

    fn make(&mut self) -> Result<Self::Live> {
        let mut store = Store::new(self.guest.engine(), ());
        store.set_epoch_deadline(NEVER);
        self.guest.instance(store)
    }

    fn call(&mut self, (store, instance, _): &mut Self::Live) -> Result<()> {
        let add = instance.get_typed_func::<(i32, i32), i32>(&mut *store, EXPORT)?;
        match add.call(store, ARGS)? {
            SUM => Ok(()),
            other => bail!("{EXPORT} answered {other}"),
        }
    }

    fn kept(&mut self) -> (&mut Option<Self::Live>, Operation) {
        (&mut self.live, self.operation)
    }
}

struct Core {
    live: Option<Arc<guest::Guest>>,
    template: Template,
    operation: Operation,
}

fn template(wasm: &[u8]) -> Result<Template> {
    let module = module::Module::compile(wasm, &compile_options())?;
    let limits = Limits {
        memory: Some(256 << 20),
        total_memory: None,
        tables: Some(100),
        table_elements: Some(10_000_000),
        instances: Some(10),
    };
    let options = InstanceOptions {
        imports: Vec::new(),
        wasi: None,
        limits,
        host_timeout: None,
        runner: Runner::Scheduler,
        inbox_limit: 0,
    };
    Ok(Template::new(&module, &options)?)
}

impl Ways for Core {
    type Live = Arc<guest::Guest>;

    fn make(&mut self) -> Result<Self::Live> {
        let guest = guest::Guest::of(&self.template)?;
        guest.instantiate()?;
        Ok(guest)
    }

    fn call(&mut self, guest: &mut Self::Live) -> Result<()> {
        let args = vec![Value::I32(ARGS.0), Value::I32(ARGS.1)];
        let request = Request::call(guest.module(), EXPORT, args)?;
        guest.submit(Job::new(request, Arc::new(Asker)), None)?;
        let mut cx = Context::from_waker(Waker::noop());
        let Step::Done(job, outcome) = guest.poll(&mut cx) else {
            bail!("{EXPORT} did not end in one poll");
        };
        job.finish(Ok(Vec::new()));
        guest.poll(&mut cx);
        match outcome?[..] {
            [Value::I32(SUM)] => Ok(()),
            ref other => bail!("{EXPORT} answered {other:?}"),
        }
    }

    fn kept(&mut self) -> (&mut Option<Self::Live>, Operation) {
        (&mut self.live, self.operation)
    }
}

/// Reads the outcome from the poll.
struct Asker;

impl Client for Asker {
    fn host_call(&self, _: HostCall, _: &HostImport) -> bool {
        false
    }

    fn asker(&self) -> u64 {
        0
    }

    fn finish(&self, _: JobId, _: Outcome) {}
}
