//! Modules: what can take long runs on dirty schedulers.

use rustler::{Atom, Binary, Encoder, Env, NewBinary, NifResult, ResourceArc, Term};
use wasmtime_beam::Result;
use wasmtime_beam::engine::Engine;
use wasmtime_beam::module::{Import, Module, parse_wat, validate};
use wasmtime_beam::value::{Signature, Type};

use super::{answer, checked, done, guarded};
use crate::atoms;
use crate::resource;
use crate::term::error::atom;
use crate::term::map::from_pairs;
use crate::term::options;

#[rustler::nif(schedule = "DirtyCpu")]
fn module_compile<'a>(env: Env<'a>, wasm: Binary<'a>, opts: Term<'a>) -> NifResult<Term<'a>> {
    checked(env, || {
        let options = options::compile(opts)?;
        Ok(answer(env, handle(Module::compile(&wasm, &options))))
    })
}

#[rustler::nif(schedule = "DirtyCpu")]
fn module_wat2wasm<'a>(env: Env<'a>, text: Binary<'a>) -> Term<'a> {
    guarded(env, || answer(env, parse_wat(&text).map(|wasm| binary(env, &wasm))))
}

#[rustler::nif(schedule = "DirtyCpu")]
fn module_validate<'a>(env: Env<'a>, wasm: Binary<'a>, opts: Term<'a>) -> NifResult<Term<'a>> {
    checked(env, || {
        let options = options::compile(opts)?;
        let check = || Engine::get(&options).and_then(|engine| validate(&engine, &wasm));
        Ok(done(env, check()))
    })
}

#[rustler::nif(schedule = "DirtyCpu")]
fn module_serialize<'a>(
    env: Env<'a>,
    module: ResourceArc<resource::Module>,
    key: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let key = options::key(key)?;
        let serialize = || module.get().serialize(key.as_ref());
        Ok(answer(env, serialize().map(|bytes| binary(env, &bytes))))
    })
}

#[rustler::nif(schedule = "DirtyIo")]
fn module_deserialize<'a>(
    env: Env<'a>,
    bytes: Binary<'a>,
    opts: Term<'a>,
    key: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let (options, key) = (options::compile(opts)?, options::key(key)?);
        Ok(answer(env, handle(Module::deserialize(&bytes, &options, key.as_ref()))))
    })
}

#[rustler::nif(schedule = "DirtyIo")]
fn module_deserialize_file<'a>(
    env: Env<'a>,
    path: Binary<'a>,
    opts: Term<'a>,
    check: Atom,
    key: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let (options, check) = (options::compile(opts)?, options::check(check)?);
        let (path, key) = (options::path(path), options::key(key)?);
        let load = || Module::deserialize_file(&path, &options, check, key.as_ref());
        Ok(answer(env, handle(load())))
    })
}

/// Dirty: a module may have a hundred thousand of them.
#[rustler::nif(schedule = "DirtyCpu")]
fn module_imports<'a>(env: Env<'a>, module: ResourceArc<resource::Module>) -> Vec<Term<'a>> {
    let imports = module.get().imports();
    let term = |i: &wasmtime_beam::module::Import| {
        (&i.module, &i.name, atom(env, i.kind.as_str())).encode(env)
    };
    imports.iter().map(term).collect()
}

/// `{{Module, Name}, {Params, Results}}` of each function among the imports. Dirty, as the imports.
#[rustler::nif(schedule = "DirtyCpu")]
fn module_function_imports<'a>(
    env: Env<'a>,
    module: ResourceArc<resource::Module>,
) -> Vec<Term<'a>> {
    let imports = module.get().function_imports();
    let term = |(import, signature): &(Import, Signature)| {
        ((&import.module, &import.name), types(signature)).encode(env)
    };
    imports.iter().map(term).collect()
}

/// Parameters and results of a function as texts.
pub fn types(signature: &Signature) -> (Vec<String>, Vec<String>) {
    let texts = |types: &[Type]| types.iter().map(Type::to_string).collect();
    (texts(&signature.params), texts(&signature.results))
}

/// Dirty, as the imports.
#[rustler::nif(schedule = "DirtyCpu")]
fn module_exports<'a>(env: Env<'a>, module: ResourceArc<resource::Module>) -> Vec<Term<'a>> {
    let exports = module.get().exports();
    exports.iter().map(|e| (&e.name, atom(env, e.kind.as_str())).encode(env)).collect()
}

#[rustler::nif]
fn module_options<'a>(env: Env<'a>, module: ResourceArc<resource::Module>) -> Term<'a> {
    let facts = module.get().facts();
    let mut options = module.get().engine().options().clone();
    (options.opt_level, options.proposals) = (facts.opt_level, facts.proposals.clone());
    options::encode_compile(env, &options)
}

#[rustler::nif]
fn module_kind(_module: ResourceArc<resource::Module>) -> Atom {
    atoms::module()
}

#[rustler::nif]
fn pool_info<'a>(env: Env<'a>, module: ResourceArc<resource::Module>) -> Term<'a> {
    let info = module.get().engine().pool().info();
    let pairs = [
        (atoms::total(), info.total),
        (atoms::used(), info.used),
        (atoms::warm(), info.warm),
        (atoms::restoring(), info.restoring),
        (atoms::resets(), info.resets),
        (atoms::bytes_restored(), info.bytes_restored),
        (atoms::verify_failures(), info.verify_failures),
    ];
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.encode(env), v.encode(env))).collect();
    from_pairs(env, &pairs)
}

/// A compiled module as a reference.
pub fn handle(module: Result<Module>) -> Result<ResourceArc<resource::Module>> {
    module.map(|module| ResourceArc::new(resource::Module::new(module)))
}

/// Bytes as a binary.
pub fn binary<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}
