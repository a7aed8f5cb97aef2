//! Compiled modules: made from WebAssembly or from an artifact, immutable, shared by all.
//!
//! - `Module`: the compiled code, the images of its memories, and what was linked from it.
//! - `artifact`: the file container.
//! - `facts`: what an artifact says about its module besides the code.
//! - `seal`: the tag behind an artifact that says who made it.
//! - `inspect`: imports and exports as data.
//! - `kept`: linked forms, kept for the next instance.
//! - `bombs`: what the compiler is not asked to do.
//! - `source`: from text and bytes to compiled code (`absent` in a build without a compiler).
//! - `survey`: the facts of a module, from its bytes.

pub mod artifact;
#[cfg(feature = "compiler")]
mod bombs;
#[cfg(feature = "compiler")]
mod crew;
mod facts;
mod footer;
mod inspect;
mod kept;
mod seal;
#[cfg_attr(not(feature = "compiler"), path = "absent.rs")]
mod source;
#[cfg(feature = "compiler")]
mod survey;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use wasmtime::{ExternType, ImportType, ModuleExport};

pub use facts::Facts;
pub use inspect::{Export, ExternKind, Import};
use kept::Kept;
#[cfg(feature = "compiler")]
pub(crate) use source::foreign;
pub use source::{parse_wat, validate};

use crate::counts::{Live, Object};
use crate::engine::Engine;
use crate::error::{Class, Error, Kind, Result};
use crate::guest::{panicked, unknown_function, unknown_global, unknown_table};
use crate::linker::{Hosts, Linked, Shape};
use crate::mac::Key;
use crate::memory::{Lease, MemoryPlan};
use crate::options::{Check, CompileOptions, InstanceOptions};
use crate::value::{Field, Signature, Type};

/// A compiled module. Cloning is cheap.
#[derive(Clone)]
pub struct Module(Arc<Inner>);

struct Inner {
    // Fields drop in order: the code goes before the engine.
    linked: Kept<Linked>,
    hosts: Kept<Hosts>,
    wasmtime: wasmtime::Module,
    engine: Arc<Engine>,
    memories: Vec<MemoryPlan>,
    facts: Facts,
    functions: BTreeMap<String, Arc<Function>>,
    tables: usize,
    _live: Live,
}

/// An exported function.
pub struct Function {
    pub name: String,
    pub signature: Signature,
    /// Where an instance of the module has it.
    pub(crate) place: ModuleExport,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({:?}, {:?})", self.name, self.signature)
    }
}

impl Module {
    /// Compiles WebAssembly.
    ///
    /// # Errors
    /// Class `compile`: `malformed`, `invalid`, `unsupported`, and those of [`Engine::get`];
    /// `unavailable` in a build without a compiler.
    pub fn compile(wasm: &[u8], options: &CompileOptions) -> Result<Self> {
        source::compile(wasm, options)
    }

    /// The artifact of this module: code, images and facts in one file, sealed if there is a key.
    ///
    /// # Errors
    /// Class `compile`, kind `unavailable` in a build without a compiler.
    pub fn serialize(&self, key: Option<&Key>) -> Result<Vec<u8>> {
        let code = source::code(&self.0.wasmtime)?;
        let mut bytes = artifact::write(&code, &self.0.memories, &self.0.facts.encode());
        if let Some(key) = key {
            seal::append(&mut bytes, key);
        }
        Ok(bytes)
    }

    /// Loads an artifact from memory; every byte is checked. With a key, nothing is looked at that
    /// was not sealed with it.
    ///
    /// # Errors
    /// Class `compile`: `untrusted`, `corrupted`, `incompatible`, and those of [`Engine::get`].
    pub fn deserialize(bytes: &[u8], options: &CompileOptions, key: Option<&Key>) -> Result<Self> {
        key.map_or(Ok(()), |key| seal::check(bytes, key))?;
        let contents = artifact::parse(bytes, Check::Full)?;
        let facts = Facts::decode(&contents.meta)?;
        facts.must_fit(options)?;
        let engine = Engine::get(options)?;
        let code = &bytes[contents.code.clone()];
        // SAFETY: the checksum says that the code is what `serialize` wrote; that nobody else wrote
        // it is what the seal says, or who hands us an artifact without a key vouches for, as for a
        // shared library.
        let load = || unsafe { wasmtime::Module::deserialize(engine.wasmtime(), code) };
        let wasmtime = load_code(load)?;
        Module::new(engine, wasmtime, contents.plans(bytes)?, facts)
    }

    /// Maps an artifact from its file. The file must not be changed in place while it is in use
    /// (replacing it by a rename is fine): it is mapped like a shared library. With a key, a checked
    /// copy in memory is mapped instead, whole; then it does not matter what becomes of the file.
    ///
    /// # Errors
    /// As [`Module::deserialize`], and `file` when it cannot be read.
    pub fn deserialize_file(
        path: &Path,
        options: &CompileOptions,
        check: Check,
        key: Option<&Key>,
    ) -> Result<Self> {
        let file = open(path)?;
        let (file, check) = match key {
            Some(key) => (Arc::new(seal::copy(&file, key)?), Check::Full),
            None => (Arc::new(file), check),
        };
        let contents = artifact::parse_file(&file, check)?;
        let facts = Facts::decode(&contents.meta)?;
        facts.must_fit(options)?;
        let engine = Engine::get(options)?;
        let code = file.try_clone().map_err(|error| unreadable(path, &error))?;
        // SAFETY: as in `deserialize`; code and images come from the one file that was checked.
        let load = || unsafe { wasmtime::Module::deserialize_open_file(engine.wasmtime(), code) };
        let wasmtime = load_code(load)?;
        Module::new(engine, wasmtime, contents.plans_from(&file)?, facts)
    }

    fn new(
        engine: Arc<Engine>,
        wasmtime: wasmtime::Module,
        memories: Vec<MemoryPlan>,
        facts: Facts,
    ) -> Result<Self> {
        if memories.iter().any(|plan| plan.shared) && !engine.options().shares_memories() {
            let message = "the artifact has a shared memory, for which the option proposals must say threads => true";
            return Err(facts::incompatible("proposals", message));
        }
        let functions = functions(&wasmtime);
        let tables = wasmtime.resources_required().num_tables as usize;
        Ok(Module(Arc::new(Inner {
            linked: Kept::default(),
            hosts: Kept::default(),
            wasmtime,
            engine,
            memories,
            facts,
            functions,
            tables,
            _live: Live::new(Object::Module),
        })))
    }

    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// True when no other handle of this module is alive.
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// An exported function.
    ///
    /// # Errors
    /// Class `call`, kind `unknown_export`.
    pub fn function(&self, name: &str) -> Result<&Arc<Function>> {
        self.0.functions.get(name).ok_or_else(|| unknown_function(name))
    }

    /// The type of an export.
    pub(crate) fn export_type(&self, name: &str) -> Option<ExternType> {
        self.0.wasmtime.get_export(name)
    }

    /// The type of an import.
    pub(crate) fn import_type(&self, module: &str, name: &str) -> Option<ExternType> {
        let found = self.0.wasmtime.imports().find(|i| i.module() == module && i.name() == name);
        found.map(|import| import.ty())
    }

    /// The type of an exported global.
    ///
    /// # Errors
    /// Class `global`, kind `unknown_export`.
    pub fn global(&self, name: &str) -> Result<Field> {
        let ty = self.export_type(name);
        let ty = ty.as_ref().and_then(ExternType::global).ok_or_else(|| unknown_global(name))?;
        Ok(Field { ty: Type::of(ty.content()), mutable: ty.mutability().is_var() })
    }

    /// The type of the elements of an exported table.
    ///
    /// # Errors
    /// Class `table`, kind `unknown_export`.
    pub fn table(&self, name: &str) -> Result<Type> {
        let ty = self.export_type(name);
        let ty = ty.as_ref().and_then(ExternType::table).ok_or_else(|| unknown_table(name))?;
        Ok(Type::Ref(ty.element().clone()))
    }

    /// Imports in their order.
    pub fn imports(&self) -> Vec<Import> {
        self.0.wasmtime.imports().map(|import| Import::of(&import)).collect()
    }

    /// Functions among the imports, with what they take and give.
    pub fn function_imports(&self) -> Vec<(Import, Signature)> {
        let function = |import: ImportType<'_>| {
            let signature = Signature::of(import.ty().func()?);
            Some((Import::of(&import), signature))
        };
        self.0.wasmtime.imports().filter_map(function).collect()
    }

    /// Exports in their order.
    pub fn exports(&self) -> Vec<Export> {
        self.0.wasmtime.exports().map(|export| Export::of(&export)).collect()
    }

    /// The module with its imports resolved.
    ///
    /// # Errors
    /// Those of [`Linked::new`].
    pub fn link(&self, options: &InstanceOptions) -> Result<Arc<Linked>> {
        let shape = Shape::of(options);
        self.0.linked.get(&shape, || Linked::new(&self.0.wasmtime, &shape))
    }

    /// What the host and WASI give to the module where links give the rest.
    ///
    /// # Errors
    /// Those of [`Hosts::new`].
    pub(crate) fn hosts(&self, shape: &Shape) -> Result<Arc<Hosts>> {
        self.0.hosts.get(shape, || Hosts::new(&self.0.wasmtime, shape))
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Module {
        &self.0.wasmtime
    }

    /// The memories that the module defines.
    pub(crate) fn plans(&self) -> &[MemoryPlan] {
        &self.0.memories
    }

    /// How many tables the module defines.
    pub(crate) fn tables(&self) -> usize {
        self.0.tables
    }

    /// Memories and a place for one instance; `None` when more than `clears` bytes of other modules
    /// are in the way.
    ///
    /// # Errors
    /// Class `pool`, kind `pool_exhausted`.
    pub fn lease(&self, clears: usize) -> Result<Option<Lease>> {
        self.0.engine.pool().acquire_linked(1, &self.0.memories, self.0.tables, clears)
    }
}

fn functions(module: &wasmtime::Module) -> BTreeMap<String, Arc<Function>> {
    let function = |export: wasmtime::ExportType<'_>| {
        let ExternType::Func(ty) = export.ty() else { return None };
        let (name, signature) = (export.name().to_owned(), Signature::of(&ty));
        let place = module.get_export_index(&name)?;
        Some((name.clone(), Arc::new(Function { name, signature, place })))
    };
    module.exports().filter_map(function).collect()
}

fn open(path: &Path) -> Result<File> {
    // Opening a pipe would wait for whoever writes to it.
    let mut how = File::options();
    how.read(true).custom_flags(libc::O_NONBLOCK);
    let file = how.open(path).map_err(|error| unreadable(path, &error))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Ok(_) => Err(unreadable(path, &std::io::Error::other("not a regular file"))),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::new(Class::Compile, Kind::File, format!("{}: {error}", path.display()))
}

/// Without a checksum of the whole, damage can reach Wasmtime, which panics over some of it.
fn load_code(
    load: impl FnOnce() -> wasmtime::Result<wasmtime::Module>,
) -> Result<wasmtime::Module> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(load)) {
        Ok(loaded) => loaded.map_err(|error| incompatible(&error)),
        Err(panic) => {
            let message = format!("the code is damaged: {}", panicked(panic.as_ref()).message);
            Err(Error::new(Class::Compile, Kind::Corrupted, message))
        }
    }
}

fn incompatible(error: &wasmtime::Error) -> Error {
    Error::new(Class::Compile, Kind::Incompatible, error.root_cause().to_string())
}
