//! The NIF library: the only crate that knows Erlang terms.
//!
//! - `atoms`: every atom.
//! - `term`: terms to data and back, both directions of a conversion side by side.
//! - `resource`: what an Erlang reference holds.
//! - `client`: tells a process what became of its request.
//! - `outbox`: takes the streams of an instance.
//! - `pin`: keeps the library mapped, whatever becomes of its Erlang module.
//! - `post`: messages, from any thread.
//! - `runner::scheduler`: polls a guest inside a NIF call of the process that asked.
//! - `slice`: how much of its turn a process uses.
//! - `background`: one thread for what must not happen on a scheduler.
//! - `nif`: the functions, one file per noun.
//!
//! Absent here: what a guest is, how it runs, how memory is restored.

mod atoms;
mod background;
mod client;
mod nif;
mod outbox;
mod pin;
mod post;
mod resource;
mod runner;
mod slice;
mod term;

use rustler::{Env, Term};

#[global_allocator]
static ALLOCATOR: wasmtime_beam::allocator::Allocator = wasmtime_beam::allocator::Allocator;

/// Must equal `?ABI` of wasmtime_nif.erl: a library of another build is refused.
const ABI: u32 = 11;

fn load(env: Env<'_>, info: Term<'_>) -> bool {
    let wanted: Result<(rustler::Atom, u32), _> = info.decode();
    let matches = wanted.is_ok_and(|(tag, version)| tag == atoms::abi() && version == ABI);
    matches
        && pin::library()
        && wasmtime_beam::ticker::start().is_ok()
        && wasmtime_beam::memory::start_restorer().is_ok()
        && background::start(env).is_ok()
}

rustler::init!("wasmtime_nif", load = load);
