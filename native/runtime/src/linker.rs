//! Imports and WASI as a linked module, made once per module and import shape.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use wasmtime::{
    Extern, ExternType, FuncType, ImportType, InstancePre, Linker, Store, UnknownImportError,
};

use crate::error::{Class, Error, Kind, Result};
use crate::guest::{Control, Data, HostImport, host_call};
use crate::links::Chain;
use crate::module::ExternKind;
use crate::options::{Clocks, InstanceOptions, Limits, Runner};
use crate::stream::{self, Ends};
use crate::value::Signature;
use crate::wasi::{self, Wasi};

/// Of a store in which nothing is made.
const NO_LIMITS: Limits = Limits {
    memory: None,
    total_memory: None,
    tables: None,
    table_elements: None,
    instances: None,
};

/// Bytes of names up to which what was linked by them is kept.
const LARGE_SHAPE: usize = 64 << 10;

/// What a linked module depends on besides the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

    /// True when the names are so long, or so many, that nothing is to be kept by them.
    pub(crate) fn is_large(&self) -> bool {
        self.imports.iter().map(|(module, name)| module.len() + name.len()).sum::<usize>()
            > LARGE_SHAPE
    }

    /// The same for equal shapes, and different for others as a rule.
    pub(crate) fn hashed(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Where the name stands among those that the host serves.
    fn position(&self, module: &str, name: &str) -> Option<usize> {
        self.imports.binary_search_by(|(m, n)| (m.as_str(), n.as_str()).cmp(&(module, name))).ok()
    }
}

/// A module with its imports resolved.
pub enum Linked {
    /// By the host and WASI alone: nothing is looked up any more.
    Alone(InstancePre<Data>),
    /// By other modules of the same store too.
    Chain(Chain),
}

impl Linked {
    /// Resolves the imports of `module`. The host's functions come before the built-in ones and WASI's.
    ///
    /// # Errors
    /// Class `link`: `unsupported_import`, `unknown_import`, `incompatible_import`.
    pub fn new(module: &wasmtime::Module, shape: &Shape) -> Result<Self> {
        let other = module.imports().find(|import| import.ty().func().is_none());
        if let Some(import) = other {
            return Err(unsupported("the module", &import, &[]));
        }
        let pre = linker(module, shape)?.instantiate_pre(module);
        pre.map(Linked::Alone).map_err(|error| refused(&error))
    }
}

/// What the host and WASI give to a module whose other imports come from links.
pub(crate) struct Hosts {
    linker: Linker<Data>,
    /// By the position of the import.
    types: Vec<Option<FuncType>>,
}

impl Hosts {
    /// # Errors
    /// `internal`.
    pub fn new(module: &wasmtime::Module, shape: &Shape) -> Result<Self> {
        let linker = linker(module, shape)?;
        let control = Control::new(module.engine().clone(), None, Runner::Thread);
        // Types are told by a store only.
        let mut store =
            Store::new(module.engine(), Data::new(control, None, NO_LIMITS, Ends::none()));
        let mut ty = |import: ImportType<'_>| {
            let given = linker.get(&mut store, import.module(), import.name());
            given.ok().and_then(Extern::into_func).map(|func| func.ty(&store))
        };
        let types = module.imports().map(&mut ty).collect();
        Ok(Hosts { linker, types })
    }

    /// The type of the function that is given for an import.
    pub fn function(&self, position: usize) -> Option<&FuncType> {
        self.types.get(position)?.as_ref()
    }

    /// The function itself, in a store.
    ///
    /// # Errors
    /// `internal`: out of memory.
    pub fn get(&self, store: &mut Store<Data>, module: &str, name: &str) -> Result<Extern> {
        self.linker.get(store, module, name).map_err(|error| Error::internal(error.to_string()))
    }
}

/// The functions that host, streams and WASI give to `module`.
fn linker(module: &wasmtime::Module, shape: &Shape) -> Result<Linker<Data>> {
    let mut linker: Linker<Data> = Linker::new(module.engine());
    if let Some(clocks) = shape.wasi {
        wasi::add_to_linker(&mut linker, clocks, wasi_of)?;
        wasi::add_unstable_to_linker(&mut linker, clocks, wasi_of)?;
    }
    linker.allow_shadowing(true);
    for import in module.imports() {
        let (from, name) = (import.module(), import.name());
        let ExternType::Func(ty) = import.ty() else { continue };
        if let Some(index) = shape.position(from, name) {
            let signature = Signature::of(&ty);
            let import = HostImport { module: from.into(), name: name.into(), signature, index };
            define(&mut linker, Arc::new(import), ty)?;
        } else {
            stream::define(&mut linker, module, (from, name))?;
        }
    }
    Ok(linker)
}

fn wasi_of(data: &mut Data) -> &mut Wasi {
    // Linked with WASI means made with WASI: both come from the same options.
    data.wasi.as_deref_mut().expect("a guest linked with WASI has its state")
}

/// `who` imports what only links serve, and `links` are all there are.
pub(crate) fn unsupported(who: &str, import: &ImportType<'_>, links: &[&str]) -> Error {
    let (what, module, name) = (ExternKind::of(&import.ty()), import.module(), import.name());
    let what = what.as_str();
    let others = match links {
        [] => "there are none".to_owned(),
        names => format!("those there are: {}", names.join(", ")),
    };
    let message = format!(
        "{who} imports the {what} {module}.{name}, but no link is named {module:?} ({others}): memories, \
         tables, globals and tags are served by links only"
    );
    Error::new(Class::Link, Kind::UnsupportedImport, message)
}

fn refused(error: &wasmtime::Error) -> Error {
    let Some(unknown) = error.downcast_ref::<UnknownImportError>() else {
        return Error::new(Class::Link, Kind::IncompatibleImport, format!("{error:#}"));
    };
    let (module, name) = (unknown.module(), unknown.name());
    let hint =
        if module.starts_with("wasi_") { " (the option wasi does, for preview 1)" } else { "" };
    let message = format!("the module imports {module}.{name}, which nobody gives{hint}");
    Error::new(Class::Link, Kind::UnknownImport, message)
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
