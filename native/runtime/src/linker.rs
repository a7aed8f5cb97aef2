//! Imports and WASI as a linked module, made once per module and import shape.

use std::sync::Arc;

use wasmtime::{ExternType, InstancePre, Linker, UnknownImportError};

use crate::error::{Class, Error, Kind, Result};
use crate::guest::{Data, HostImport, host_call};
use crate::options::{Clocks, InstanceOptions};
use crate::value::Signature;
use crate::wasi::{self, Wasi};

/// What a linked module depends on besides the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Names of the imports that the host serves, sorted.
    imports: Vec<(String, String)>,
    wasi: Option<Clocks>,
}

impl Shape {
    pub fn of(options: &InstanceOptions) -> Self {
        let mut imports = options.imports.clone();
        imports.sort_unstable();
        Shape { imports, wasi: options.wasi.as_ref().map(|wasi| wasi.clocks) }
    }

    /// Where the name stands among those that the host serves.
    fn position(&self, module: &str, name: &str) -> Option<usize> {
        self.imports.binary_search_by(|(m, n)| (m.as_str(), n.as_str()).cmp(&(module, name))).ok()
    }
}

/// A module with its imports resolved.
pub struct Linked {
    pre: InstancePre<Data>,
}

impl Linked {
    pub(crate) fn pre(&self) -> &InstancePre<Data> {
        &self.pre
    }

    /// Resolves the imports of `module`. The host's functions come before WASI's.
    ///
    /// # Errors
    /// Class `link`: `unsupported_import`, `unknown_import`, `incompatible_import`.
    pub fn new(module: &wasmtime::Module, shape: &Shape) -> Result<Self> {
        let mut linker: Linker<Data> = Linker::new(module.engine());
        if let Some(clocks) = shape.wasi {
            wasi::add_to_linker(&mut linker, clocks, wasi_of)?;
            wasi::add_unstable_to_linker(&mut linker, clocks, wasi_of)?;
        }
        linker.allow_shadowing(true);
        for import in module.imports() {
            let (from, name) = (import.module(), import.name());
            let ExternType::Func(ty) = import.ty() else { return Err(unsupported(from, name)) };
            if let Some(index) = shape.position(from, name) {
                let signature = Signature::of(&ty);
                let import =
                    HostImport { module: from.into(), name: name.into(), signature, index };
                define(&mut linker, Arc::new(import), ty)?;
            }
        }
        let pre = linker.instantiate_pre(module).map_err(|error| refused(&error))?;
        Ok(Linked { pre })
    }
}

fn wasi_of(data: &mut Data) -> &mut Wasi {
    // Linked with WASI means made with WASI: both come from the same options.
    data.wasi.as_mut().expect("a guest linked with WASI has its state")
}

fn unsupported(module: &str, name: &str) -> Error {
    let message = format!("the import {module}.{name} is not a function");
    Error::new(Class::Link, Kind::UnsupportedImport, message)
}

fn refused(error: &wasmtime::Error) -> Error {
    let kind = match error.downcast_ref::<UnknownImportError>() {
        Some(_) => Kind::UnknownImport,
        None => Kind::IncompatibleImport,
    };
    Error::new(Class::Link, kind, format!("{error:#}"))
}

fn define(
    linker: &mut Linker<Data>,
    import: Arc<HostImport>,
    ty: wasmtime::FuncType,
) -> Result<()> {
    let (module, name) = (import.module.clone(), import.name.clone());
    linker
        .func_new_async(&module, &name, ty, move |caller, params, results| {
            Box::new(host_call(caller, import.clone(), params, results))
        })
        .map_err(|error| Error::internal(error.to_string()))?;
    Ok(())
}
