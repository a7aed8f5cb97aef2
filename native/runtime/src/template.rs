//! What an instance is made of, checked and linked once: instantiation from a template looks nothing
//! up.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::linker::Linked;
use crate::module::Module;
use crate::options::{InstanceOptions, Limits, Runner, WasiOptions};
use crate::wasi::{Wasi, WasiTemplate};

/// A module with options that were checked and resolved.
pub struct Template {
    pub(crate) module: Module,
    pub(crate) linked: Arc<Linked>,
    pub(crate) wasi: Option<Arc<WasiTemplate>>,
    pub(crate) limits: Limits,
    pub(crate) host_timeout: Option<Duration>,
    pub(crate) runner: Runner,
}

impl Template {
    /// Links the module and opens what its WASI options name. An inherited environment is read
    /// here.
    ///
    /// # Errors
    /// Class `link`, and class `instantiate` for WASI options.
    pub fn new(module: &Module, options: &InstanceOptions) -> Result<Self> {
        let wasi = |options: &WasiOptions| module.wasi(options);
        Ok(Template {
            module: module.clone(),
            linked: module.link(options)?,
            wasi: options.wasi.as_ref().map(wasi).transpose()?,
            limits: options.limits.clone(),
            host_timeout: options.host_timeout,
            runner: options.runner,
        })
    }

    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The WASI state of one instance.
    pub(crate) fn instantiate_wasi(&self) -> Result<Option<Wasi>> {
        self.wasi.as_ref().map(|wasi| wasi.instantiate()).transpose()
    }
}
