//! Instances over this project's memory: a fresh one for each request, and one that serves all.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::{Instance, InstancePre, Module, Result, Store, bail};
use wasmtime_beam::engine::Engine;
use wasmtime_beam::memory::{MemoryPlan, Permit};
use wasmtime_beam::module::artifact;
use wasmtime_beam::options::{Allocator, Check, CompileOptions, OptLevel, PoolOptions};

use crate::arguments::Arguments;
use crate::request::{self, Files, Site, State};
use crate::{Named, Row};

/// As the binding's side of the benchmarks.
const POOL: PoolOptions = PoolOptions {
    instances: 256,
    max_memory: 256 << 20,
    keep_resident: 64 << 20,
    core_instances: 256,
    tables: 256,
    memories: 256,
    verify: false,
};

/// The rows `reused` and `own`.
pub fn rows(arguments: &Arguments) -> Result<Vec<Named>> {
    let guest = Arc::new(Guest::load(arguments)?);
    let reused = Reused::new(guest.clone(), Site::new(arguments, Files::Direct))?;
    let fresh = Fresh { guest, site: Site::new(arguments, Files::Direct) };
    Ok(vec![
        Named { name: "reused".into(), row: Box::new(reused) },
        Named { name: "own".into(), row: Box::new(fresh) },
    ])
}

/// What the binding's side of the benchmarks compiles with.
pub fn compile_options() -> CompileOptions {
    CompileOptions {
        fuel: false,
        opt_level: OptLevel::Speed,
        proposals: Vec::new(),
        allocator: Allocator::Pooling(POOL),
    }
}

/// A linked module and the images of its memories.
pub struct Guest<T: 'static> {
    pre: InstancePre<T>,
    memories: Vec<MemoryPlan>,
    tables: usize,
    engine: Arc<Engine>,
}

impl Guest<State> {
    /// The guest, mapped from its artifact.
    fn load(arguments: &Arguments) -> Result<Self> {
        let engine = Engine::get(&compile_options())?;
        let file = Arc::new(File::open(&arguments.artifact)?);
        let contents = artifact::parse_file(&file, Check::Full)?;
        let code = file.try_clone()?;
        // SAFETY: the artifact was serialized for this run, and its checksum says it is complete.
        let module = unsafe { Module::deserialize_open_file(engine.wasmtime(), code) }?;
        let pre = request::linker(engine.wasmtime())?.instantiate_pre(&module)?;
        Ok(Guest::new(pre, contents.plans_from(&file)?, engine))
    }
}

impl<T: 'static> Guest<T> {
    pub fn new(pre: InstancePre<T>, memories: Vec<MemoryPlan>, engine: Arc<Engine>) -> Self {
        let tables = pre.module().resources_required().num_tables as usize;
        Guest { pre, memories, tables, engine }
    }

    pub fn engine(&self) -> &wasmtime::Engine {
        self.engine.wasmtime()
    }

    /// A fresh instance in a fresh store. The permit goes after the store.
    pub fn instance(&self, mut store: Store<T>) -> Result<(Store<T>, Instance, Permit)> {
        let lease = self.engine.pool().acquire(&self.memories, self.tables)?;
        let (instance, permit) = lease.offer(|| self.pre.instantiate(&mut store));
        if permit.unclaimed() > 0 {
            bail!("the instance did not take its memory");
        }
        Ok((store, instance?, permit))
    }
}

struct Fresh {
    guest: Arc<Guest<State>>,
    site: Site,
}

impl Row for Fresh {
    fn request(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let store = self.site.store(self.guest.engine())?;
        let (mut store, instance, permit) = self.guest.instance(store)?;
        self.site.handle(&mut store, &instance)?;
        let result = store.data_mut().take_result();
        drop(store);
        drop(permit);
        let duration = start.elapsed();
        self.site.check(&result)?;
        Ok(duration)
    }
}

/// What isolation costs nothing in.
struct Reused {
    site: Site,
    store: Store<State>,
    instance: Instance,
    _permit: Permit,
    _guest: Arc<Guest<State>>,
}

impl Reused {
    fn new(guest: Arc<Guest<State>>, mut site: Site) -> Result<Self> {
        let (store, instance, permit) = guest.instance(site.store(guest.engine())?)?;
        Ok(Reused { site, store, instance, _permit: permit, _guest: guest })
    }
}

impl Row for Reused {
    fn request(&mut self) -> Result<Duration> {
        self.site.renew(&mut self.store);
        let start = Instant::now();
        self.site.handle(&mut self.store, &self.instance)?;
        let duration = start.elapsed();
        self.site.check(&self.store.data_mut().take_result())?;
        Ok(duration)
    }
}
