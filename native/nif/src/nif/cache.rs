//! The cache of artifacts: names, the lock and the file. When to make one is decided in Erlang.

use rustler::{Atom, Binary, Encoder, Env, NifResult, ResourceArc, Term};
use wasmtime_beam::cache::{Entry, Lock, prepare, store};
use wasmtime_beam::mac::Key;

use super::module::binary;
use super::{checked, done, guarded};
use crate::term::{error, options};
use crate::{atoms, resource};

#[rustler::nif(schedule = "DirtyCpu")]
fn cache_entry<'a>(env: Env<'a>, parts: Vec<Binary<'a>>, key: Term<'a>) -> NifResult<Term<'a>> {
    checked(env, || {
        let key = options::key(key)?;
        let parts: Vec<&[u8]> = parts.iter().map(Binary::as_slice).collect();
        let entry = Entry::new(&parts, key.as_ref());
        let own = entry.key.map_or(atoms::undefined().encode(env), |key| binary(env, &key));
        Ok((binary(env, entry.name.as_bytes()), own).encode(env))
    })
}

#[rustler::nif(schedule = "DirtyIo")]
fn cache_prepare<'a>(env: Env<'a>, dir: Binary<'a>, private: bool) -> Term<'a> {
    guarded(env, || done(env, prepare(&options::path(dir), private)))
}

#[rustler::nif(schedule = "DirtyIo")]
fn cache_lock<'a>(env: Env<'a>, dir: Binary<'a>, name: &str) -> Term<'a> {
    guarded(env, || match Lock::take(&options::path(dir), name) {
        Ok(Some(lock)) => (atoms::ok(), ResourceArc::new(resource::Maker::new(lock))).encode(env),
        Ok(None) => atoms::busy().encode(env),
        Err(failure) => error::encode(env, &failure),
    })
}

#[rustler::nif(schedule = "DirtyIo")]
fn cache_unlock(maker: ResourceArc<resource::Maker>) -> Atom {
    if let Some(lock) = maker.take() {
        lock.release();
    }
    atoms::ok()
}

#[rustler::nif(schedule = "DirtyIo")]
fn cache_store<'a>(
    env: Env<'a>,
    module: ResourceArc<resource::Module>,
    dir: Binary<'a>,
    name: &str,
    key: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let key: Option<Key> = options::key(key)?;
        let write = || store(&options::path(dir), name, &module.get().serialize(key.as_ref())?);
        Ok(done(env, write()))
    })
}
