//! What an instance is made of, checked and linked once: instantiation from a template looks nothing
//! up.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::guest::needs;
use crate::linker::{Linked, Shape};
use crate::links::{Chain, Link};
use crate::module::Module;
use crate::options::{InstanceOptions, Limits, Runner, WasiOptions};
use crate::stream::{self, Ends};
use crate::wasi::{Wasi, WasiTemplate};

/// A module with options that were checked and resolved.
pub struct Template {
    pub(crate) module: Module,
    pub(crate) linked: Arc<Linked>,
    pub(crate) wasi: Option<WasiTemplate>,
    pub(crate) limits: Limits,
    pub(crate) host_timeout: Option<Duration>,
    pub(crate) runner: Runner,
    pub(crate) inbox_limit: u64,
    /// A guest of it can send messages.
    sends: bool,
}

impl Template {
    /// Links the module and opens what its WASI options name.
    ///
    /// # Errors
    /// Class `link`, and class `instantiate` for WASI options.
    pub fn new(module: &Module, options: &InstanceOptions) -> Result<Self> {
        Template::linked(module, options, &[])
    }

    /// As [`Template::new`], for a module whose imports are served by `links` too: they are made
    /// first, in order, in the same store.
    ///
    /// # Errors
    /// As [`Template::new`], and those of [`Chain::new`].
    pub fn linked(module: &Module, options: &InstanceOptions, links: &[Link]) -> Result<Self> {
        let linked = link(module, options, links)?;
        Template::of(module, options, linked, WasiTemplate::new)
    }

    /// As [`Template::linked`], for one instance that is made at once: nothing that WASI opens is
    /// looked at again.
    ///
    /// # Errors
    /// As [`Template::linked`].
    pub fn for_one(module: &Module, options: &InstanceOptions, links: &[Link]) -> Result<Self> {
        let linked = link(module, options, links)?;
        Template::of(module, options, linked, WasiTemplate::for_one)
    }

    fn of(
        module: &Module,
        options: &InstanceOptions,
        linked: Arc<Linked>,
        wasi: impl FnOnce(&WasiOptions) -> Result<WasiTemplate>,
    ) -> Result<Self> {
        let sends = |module: &wasmtime::Module| stream::sends(module, &options.imports);
        let sends = match &*linked {
            Linked::Alone(_) => sends(module.wasmtime()),
            Linked::Chain(chain) => chain.parts().iter().any(|part| sends(part.module())),
        };
        Ok(Template {
            module: module.clone(),
            linked,
            wasi: options.wasi.as_ref().map(wasi).transpose()?,
            limits: options.limits.clone(),
            host_timeout: options.host_timeout,
            runner: options.runner,
            inbox_limit: options.inbox_limit,
            sends,
        })
    }

    /// Refuses limits that no instance of it could live under.
    ///
    /// # Errors
    /// Class `limit`.
    pub fn must_fit(&self) -> Result<()> {
        let needs = needs(&self.module, &self.linked);
        needs.must_fit(&self.limits)?;
        let table = |module: &wasmtime::Module| module.resources_required().max_initial_table_size;
        let largest = match &*self.linked {
            Linked::Alone(_) => table(self.module.wasmtime()),
            Linked::Chain(chain) => chain.parts().iter().filter_map(|p| table(p.module())).max(),
        };
        let largest = largest.unwrap_or_default();
        needs.can_begin(largest, &self.limits)
    }

    /// True when instantiation does more than a normal scheduler should wait for.
    pub fn is_heavy(&self) -> bool {
        match &*self.linked {
            Linked::Alone(_) => self.module.facts().heavy,
            Linked::Chain(chain) => chain.is_heavy(),
        }
    }

    /// True when instances can stream something out: they want an outlet.
    pub fn is_streaming(&self) -> bool {
        self.sends || self.wasi.as_ref().is_some_and(|wasi| wasi.is_streamed())
    }

    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The WASI state of one instance.
    pub(crate) fn instantiate_wasi(&self, ends: &Ends) -> Result<Option<Box<Wasi>>> {
        self.wasi.as_ref().map(|wasi| wasi.instantiate(ends).map(Box::new)).transpose()
    }
}

fn link(module: &Module, options: &InstanceOptions, links: &[Link]) -> Result<Arc<Linked>> {
    if links.is_empty() {
        return module.link(options);
    }
    // Not kept by the module: two modules that link each other would never go.
    let chain = Chain::new(links, module, &Shape::of(options))?;
    Ok(Arc::new(Linked::Chain(chain)))
}
