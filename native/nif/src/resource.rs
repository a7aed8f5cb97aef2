//! What an Erlang reference holds. Destructors run on any scheduler at any moment: they only hand
//! over what takes time.

use parking_lot::Mutex;
use rustler::{Resource, ResourceArc};
use wasmtime_beam::cache::Lock;
use wasmtime_beam::guest::Ref;
use wasmtime_beam::preinit::Instrumented;
use wasmtime_beam::template::Template;

use crate::background;
use crate::runner::scheduler::Turn;
use crate::term::options::Processes;

mod instance;
mod jobs;

pub use instance::Instance;

/// A compiled module.
pub struct Module {
    inner: Option<wasmtime_beam::module::Module>,
}

impl Module {
    pub fn new(module: wasmtime_beam::module::Module) -> Self {
        Module { inner: Some(module) }
    }

    pub fn get(&self) -> &wasmtime_beam::module::Module {
        self.inner.as_ref().expect("only drop takes the module out")
    }
}

#[rustler::resource_impl]
impl Resource for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        // The last handle unmaps code and images.
        if let Some(module) = self.inner.take() {
            background::free(module);
        }
    }
}

/// A reference into an instance, which it keeps alive.
pub struct Reference {
    // Fields drop in order: the root goes before its store may.
    pub reference: Ref,
    pub instance: ResourceArc<Instance>,
}

impl Reference {
    pub fn new(reference: Ref, instance: &ResourceArc<Instance>) -> ResourceArc<Self> {
        ResourceArc::new(Reference { reference, instance: instance.clone() })
    }
}

#[rustler::resource_impl]
impl Resource for Reference {}

/// A module made ready for its init run.
pub struct Preinit(pub Instrumented);

#[rustler::resource_impl]
impl Resource for Preinit {}

/// A call that its own process polls.
pub struct Call(pub Turn);

#[rustler::resource_impl]
impl Resource for Call {}

/// Instance options of a module, checked and linked once.
pub struct Prepared {
    template: Option<Template>,
    pub processes: Processes,
}

impl Prepared {
    pub fn new(template: Template, processes: Processes) -> Self {
        Prepared { template: Some(template), processes }
    }

    pub fn template(&self) -> &Template {
        self.template.as_ref().expect("only drop takes the template out")
    }
}

#[rustler::resource_impl]
impl Resource for Prepared {}

impl Drop for Prepared {
    fn drop(&mut self) {
        // It may hold the last handle of its module.
        if let Some(template) = self.template.take() {
            background::free(template);
        }
    }
}

/// The right to make an entry of a cache; lost with its process.
pub struct Maker(Mutex<Option<Lock>>);

impl Maker {
    pub fn new(lock: Lock) -> Self {
        Maker(Mutex::new(Some(lock)))
    }

    pub fn take(&self) -> Option<Lock> {
        self.0.lock().take()
    }
}

#[rustler::resource_impl]
impl Resource for Maker {}

impl Drop for Maker {
    fn drop(&mut self) {
        // Closing a file may take its time.
        if let Some(lock) = self.take() {
            background::free(lock);
        }
    }
}
