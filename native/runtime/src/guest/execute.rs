//! One request is one arm of `execute`; everything here works on any context of the store.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use wasmtime::{AsContextMut, Func, Instance, StoreContextMut, Val};

use super::control::Control;
use super::host_call::visiting;
use super::job::{JobId, Outcome, Request};
use super::store::{Data, StoreCell};
use crate::error::{Class, Error, Kind, Result};
use crate::linker::Linked;
use crate::trap;
use crate::value::{Type, Value, from_val};

/// Runs a request to its end.
pub(super) async fn execute(cell: &mut StoreCell, linked: &Linked, request: Request) -> Outcome {
    // The last deadline may be long past, and would cost a yield at once.
    cell.store.set_epoch_deadline(1);
    match request {
        Request::Instantiate => instantiate(cell, linked).await,
        request => perform(cell.store.as_context_mut(), request).await,
    }
}

/// Runs a request that needs an instance: of an idle guest, or inside one of its host calls.
pub(super) async fn perform(mut store: StoreContextMut<'_, Data>, request: Request) -> Outcome {
    match request {
        Request::Instantiate => Err(Error::internal("an instance is made once")),
        Request::Call { export, args, fuel } => {
            if let Some(fuel) = fuel {
                set_fuel(&mut store, fuel)?;
            }
            call(store, &export, &args).await
        }
    }
}

/// The outcome of `work`, or the reason why `job` must stop: dropping the work unwinds the guest's
/// stack, so that the store is as usable as after a trap.
pub(super) async fn stoppable(
    control: &Control,
    job: JobId,
    work: impl Future<Output = Outcome>,
) -> Outcome {
    let mut work = pin!(work);
    poll_fn(|cx| match control.cancelled(job).filter(|_| !visiting()) {
        Some(reason) => Poll::Ready(Err(reason.error())),
        None => work.as_mut().poll(cx),
    })
    .await
}

async fn instantiate(cell: &mut StoreCell, linked: &Linked) -> Outcome {
    if cell.module.engine().options().fuel {
        set_fuel(&mut cell.store.as_context_mut(), u64::MAX)?;
    }
    let instance = linked.pre().instantiate_async(&mut cell.store).await;
    match instance {
        Ok(instance) => cell.store.data_mut().instance = Some(instance),
        Err(error) => {
            exit_is_success(trap::from_wasmtime(&error)).map_err(|error| limit_hit(cell, error))?;
        }
    }
    Ok(Vec::new())
}

/// A limit that refused a memory or a table is the reason; Wasmtime's message only says that it failed.
fn limit_hit(cell: &mut StoreCell, error: Error) -> Error {
    let hit = cell.store.data_mut().limiter.take_hit();
    match hit {
        Some(hit) if error.class == Class::Internal => hit,
        _ if error.message.contains("resource limit exceeded") => {
            let table = error.message.contains("table");
            let kind = if table { Kind::TableLimit } else { Kind::InstanceLimit };
            Error { kind, class: Class::Limit, ..error }
        }
        _ if error.class == Class::Internal => {
            Error { class: Class::Instantiate, kind: Kind::OutOfMemory, ..error }
        }
        _ => error,
    }
}

fn set_fuel(store: &mut StoreContextMut<'_, Data>, fuel: u64) -> Result<()> {
    store.set_fuel(fuel).map_err(|_| {
        Error::option(Class::Call, "fuel", "the module was not compiled with the option fuel")
    })
}

async fn call(mut store: StoreContextMut<'_, Data>, export: &str, args: &[Value]) -> Outcome {
    let func = exported(&mut store, export)?;
    let mut results = blank_results(&store, &func, export)?;
    let params: Vec<Val> = args.iter().map(|value| Val::from(*value)).collect();
    match func.call_async(&mut store, &params, &mut results).await {
        Ok(()) => {
            results.iter().map(from_val).collect::<Option<_>>().ok_or_else(|| reference(export))
        }
        Err(error) => exit_is_success(trap::from_wasmtime(&error)),
    }
}

fn exported(store: &mut StoreContextMut<'_, Data>, export: &str) -> Result<Func> {
    let instance: Option<Instance> = store.data().instance;
    instance.and_then(|instance| instance.get_func(&mut *store, export)).ok_or_else(|| {
        Error::new(Class::Call, Kind::UnknownExport, format!("no exported function {export:?}"))
    })
}

fn blank_results(store: &StoreContextMut<'_, Data>, func: &Func, export: &str) -> Result<Vec<Val>> {
    let ty = func.ty(store);
    let blanks = ty.results().map(|ty| Type::of(&ty).zero()).collect::<Option<Vec<Val>>>();
    blanks.ok_or_else(|| reference(export))
}

fn reference(export: &str) -> Error {
    let message = format!("{export:?} takes or returns a reference");
    Error::new(Class::Call, Kind::Unsupported, message)
}

/// `proc_exit(0)` is an end like any other.
fn exit_is_success(error: Error) -> Outcome {
    if error.status == Some(0) { Ok(Vec::new()) } else { Err(error) }
}
