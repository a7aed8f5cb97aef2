//! Which link, host function or WASI function serves each import of several modules.
//! Rule: names are looked up here, once; a message names who imports and who exports.

use std::sync::Arc;

use wasmtime::{Engine, Extern, ExternType, ImportType, Instance, ModuleExport, Store};

use super::types::{describe, fits, fits_size};
use crate::error::{Class, Error, Kind, Quoted, Result};
use crate::guest::Data;
use crate::linker::{Hosts, Shape, unsupported};
use crate::memory::{MemoryPlan, Permit, Share};
use crate::module::Module;
use crate::options::CompileOptions;

/// A module, and the name from which the modules after it import.
#[derive(Clone)]
pub struct Link {
    pub name: String,
    pub module: Module,
}

/// Links in their order, then the main module: all imports resolved.
pub struct Chain {
    parts: Vec<Part>,
    /// The memories of all parts, in order.
    plans: Vec<MemoryPlan>,
    tables: usize,
}

/// One module of a chain.
pub(crate) struct Part {
    /// The link's name; none for the main module.
    name: Option<String>,
    module: Module,
    hosts: Arc<Hosts>,
    imports: Vec<Import>,
}

/// An import and who serves it.
struct Import {
    module: String,
    name: String,
    ty: ExternType,
    source: Source,
}

enum Source {
    /// An export of an earlier part.
    Link(usize, ModuleExport),
    Host,
}

impl Chain {
    /// Resolves the imports of `links`, in order, and of `main`: by links before it, then by the host,
    /// then by WASI.
    ///
    /// # Errors
    /// `badarg` with the key `links`: another engine, or a name twice. Class `link`: `cycle`,
    /// `unknown_import`, `incompatible_import`, `unsupported_import`.
    pub fn new(links: &[Link], main: &Module, shape: &Shape) -> Result<Self> {
        check(links, main)?;
        let mut parts: Vec<Part> = Vec::with_capacity(links.len() + 1);
        for link in links {
            let part = Part::new(Some(&link.name), &link.module, shape, links, &parts)?;
            parts.push(part);
        }
        let part = Part::new(None, main, shape, links, &parts)?;
        parts.push(part);
        let plans = parts.iter().flat_map(|part| part.module.plans()).cloned().collect();
        let tables = parts.iter().map(|part| part.module.tables()).sum();
        Ok(Chain { parts, plans, tables })
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Memories for each part, and the place of all of them in the pool; `None` when more than `clears`
    /// bytes of other modules are in the way.
    ///
    /// # Errors
    /// Class `pool`, kind `pool_exhausted`.
    pub(crate) fn lease(&self, clears: usize) -> Result<Option<(Vec<Share>, Permit)>> {
        let Some(main) = self.parts.last() else { return Err(Error::internal("an empty chain")) };
        let pool = main.module.engine().pool();
        let lease = pool.acquire_linked(self.parts.len(), &self.plans, self.tables, clears)?;
        let counts = self.parts.iter().map(|part| part.module.plans().len());
        Ok(lease.map(|lease| lease.split(counts)))
    }

    /// True when instantiation runs guest code.
    pub(crate) fn has_start(&self) -> bool {
        self.parts.iter().any(|part| part.module.facts().has_start)
    }

    /// True when instantiation does more than a normal scheduler should wait for: about 20
    /// microseconds for each part are fine for a few.
    pub(crate) fn is_heavy(&self) -> bool {
        self.parts.len() > 4 || self.parts.iter().any(|part| part.module.facts().heavy)
    }

    /// True when the end of the chain may be the end of a module.
    pub(crate) fn holds_last(&self) -> bool {
        self.parts.iter().any(|part| part.module.is_last())
    }

    /// The memories that all parts define, in order.
    pub(crate) fn plans(&self) -> &[MemoryPlan] {
        &self.plans
    }

    /// How many tables all parts define.
    pub(crate) fn tables(&self) -> usize {
        self.tables
    }
}

impl Part {
    fn new(
        name: Option<&str>,
        module: &Module,
        shape: &Shape,
        links: &[Link],
        before: &[Part],
    ) -> Result<Self> {
        let hosts = module.hosts(shape)?;
        let (name, imports) = (name.map(str::to_owned), Vec::new());
        let mut part = Part { name, module: module.clone(), hosts, imports };
        for (at, import) in module.wasmtime().imports().enumerate() {
            let source = part.source(at, &import, links, before)?;
            let (module, name) = (import.module().to_owned(), import.name().to_owned());
            part.imports.push(Import { module, name, ty: import.ty(), source });
        }
        Ok(part)
    }

    /// Who serves an import.
    fn source(
        &self,
        at: usize,
        import: &ImportType<'_>,
        links: &[Link],
        before: &[Part],
    ) -> Result<Source> {
        let wanted = import.ty();
        let link = links.iter().position(|link| link.name == import.module());
        let earlier = link.filter(|link| *link < before.len());
        if let Some(link) = earlier
            && let Some(export) = before[link].module.wasmtime().get_export_index(import.name())
        {
            let given = before[link].module.wasmtime().get_export(import.name());
            return match given.filter(|given| !fits(&wanted, given)) {
                None => Ok(Source::Link(link, export)),
                Some(given) => Err(self.mistyped(import, &wanted, &before[link].label(), &given)),
            };
        }
        if let Some(given) = self.hosts.function(at) {
            let given = ExternType::Func(given.clone());
            return match fits(&wanted, &given) {
                true => Ok(Source::Host),
                false => Err(self.mistyped(import, &wanted, "the host", &given)),
            };
        }
        Err(self.unserved(import, links, link.map(|_| earlier.is_some())))
    }

    /// Nobody serves the import: no link has the name that it is from, or one that is earlier, or not.
    fn unserved(&self, import: &ImportType<'_>, links: &[Link], is_earlier: Option<bool>) -> Error {
        let (who, what) = (self.label(), label_of(import.module(), import.name()));
        let from = import.module();
        match is_earlier {
            Some(true) => {
                let message =
                    format!("{who} imports {what}, which the link {from:?} does not export");
                Error::new(Class::Link, Kind::UnknownImport, message)
            }
            Some(false) if self.name.as_deref() == Some(from) => {
                let message = format!("{who} imports {what} from itself");
                Error::new(Class::Link, Kind::Cycle, message)
            }
            Some(false) => {
                let message = format!(
                    "{who} imports {what}, but the link {from:?} comes after it: a link serves those \
                     after it only"
                );
                Error::new(Class::Link, Kind::Cycle, message)
            }
            None if import.ty().func().is_none() => {
                let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
                unsupported(&who, import, &names)
            }
            None => {
                let message = format!("{who} imports {what}, which nobody gives");
                Error::new(Class::Link, Kind::UnknownImport, message)
            }
        }
    }

    fn mistyped(
        &self,
        import: &ImportType<'_>,
        wanted: &ExternType,
        giver: &str,
        given: &ExternType,
    ) -> Error {
        self.incompatible(import.module(), import.name(), wanted, giver, describe(given))
    }

    fn incompatible(
        &self,
        module: &str,
        name: &str,
        wanted: &ExternType,
        giver: &str,
        given: String,
    ) -> Error {
        let (who, what, wanted) = (self.label(), label_of(module, name), describe(wanted));
        let message = format!("{who} imports {what} as {wanted}, but {giver} gives {given}");
        Error::new(Class::Link, Kind::IncompatibleImport, message)
    }

    /// Who it is, in a message.
    fn label(&self) -> String {
        self.name.as_ref().map_or("the module".into(), |name| format!("the link {}", Quoted(name)))
    }

    pub(crate) fn module(&self) -> &wasmtime::Module {
        self.module.wasmtime()
    }

    /// The imports in a store where the parts before this one are `made`.
    ///
    /// # Errors
    /// `incompatible_import` for a memory or a table that is smaller than it must be.
    pub(crate) fn imports(
        &self,
        store: &mut Store<Data>,
        chain: &Chain,
        made: &[Instance],
    ) -> Result<Vec<Extern>> {
        let fetch = |import: &Import| match &import.source {
            Source::Host => self.hosts.get(store, &import.module, &import.name),
            Source::Link(at, export) => {
                let given =
                    made.get(*at).and_then(|link| link.get_module_export(&mut *store, export));
                let given = given.ok_or_else(|| Error::internal("an export of a link is gone"))?;
                match size(store, &given).filter(|size| !fits_size(&import.ty, *size)) {
                    None => Ok(given),
                    Some(size) => {
                        let (giver, size) =
                            (chain.parts[*at].label(), format!("one of size {size}"));
                        let Import { module, name, ty, .. } = import;
                        Err(self.incompatible(module, name, ty, &giver, size))
                    }
                }
            }
        };
        self.imports.iter().map(fetch).collect()
    }

    /// Wasmtime found a mismatch that was not found here.
    pub(crate) fn refused(&self, error: &wasmtime::Error) -> Option<Error> {
        let text = format!("{error:#}");
        let message = format!("{}: {text}", self.label());
        text.starts_with("incompatible import type")
            .then(|| Error::new(Class::Link, Kind::IncompatibleImport, message))
    }
}

/// The size of a memory or a table, in its own units.
fn size(store: &Store<Data>, given: &Extern) -> Option<u64> {
    match given {
        Extern::Memory(memory) => Some(memory.size(store)),
        Extern::SharedMemory(memory) => Some(memory.size()),
        Extern::Table(table) => Some(table.size(store)),
        Extern::Func(_) | Extern::Global(_) | Extern::Tag(_) => None,
    }
}

fn label_of(module: &str, name: &str) -> String {
    format!("{module}.{name}")
}

/// One store has one engine, and a name one link.
fn check(links: &[Link], main: &Module) -> Result<()> {
    for (at, Link { name, module }) in links.iter().enumerate() {
        if links[..at].iter().any(|earlier| earlier.name == *name) {
            return Err(badarg(format!("the link {} is given twice", Quoted(name))));
        }
        if !Engine::same(module.engine().wasmtime(), main.engine().wasmtime()) {
            let options = difference(module.engine().options(), main.engine().options());
            let message =
                format!("the link {name:?} was compiled with other options than the module");
            return Err(badarg(format!("{message} ({options})")));
        }
    }
    Ok(())
}

fn badarg(message: String) -> Error {
    Error::option(Class::Instantiate, "links", message)
}

/// The first compile option that differs.
fn difference(a: &CompileOptions, b: &CompileOptions) -> &'static str {
    if a.fuel != b.fuel {
        "fuel"
    } else if a.opt_level != b.opt_level {
        "opt_level"
    } else if a.proposals != b.proposals {
        "proposals"
    } else {
        "allocator"
    }
}
