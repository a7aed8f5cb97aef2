//! Pre-initialization: instrument, run as an ordinary instance, snapshot.

use rustler::{Binary, Encoder, Env, NifResult, ResourceArc, Term};
use wasmtime_beam::Result;
use wasmtime_beam::module::Module;
use wasmtime_beam::preinit::{SnapshotOptions, instrument};

use super::module::{binary, handle};
use super::{answer, checked, guarded};
use crate::atoms;
use crate::resource::{self, Instance, Preinit};
use crate::term::{error, options};

#[rustler::nif(schedule = "DirtyCpu")]
fn preinit_begin<'a>(env: Env<'a>, wasm: Binary<'a>, opts: Term<'a>) -> NifResult<Term<'a>> {
    checked(env, || {
        let options = options::compile(opts)?;
        let begin = || -> Result<(ResourceArc<Preinit>, ResourceArc<resource::Module>)> {
            let instrumented = instrument(&wasm)?;
            let module = handle(Module::compile(instrumented.wasm(), &options))?;
            Ok((ResourceArc::new(Preinit(instrumented)), module))
        };
        Ok(match begin() {
            Ok((preinit, module)) => (atoms::ok(), preinit, module).encode(env),
            Err(failure) => error::encode(env, &failure),
        })
    })
}

#[rustler::nif(schedule = "DirtyCpu")]
fn preinit_finish<'a>(
    env: Env<'a>,
    preinit: ResourceArc<Preinit>,
    instance: ResourceArc<Instance>,
    ran: Vec<String>,
    remove_exports: Vec<String>,
) -> Term<'a> {
    let options = SnapshotOptions { ran, remove_exports };
    guarded(env, || {
        let wasm = instance.guest().access(|mut view| view.snapshot(&preinit.0, &options));
        answer(env, wasm.map(|wasm| binary(env, &wasm)))
    })
}
