//! One request is one arm of `execute`; everything here works on any context of the store.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use wasmtime::{AsContextMut, Func, RootScope, StoreContextMut, Val};

use super::chain;
use super::control::Control;
use super::host_call::visiting;
use super::job::{JobId, Outcome, Request};
use super::refs::{Ref, enter_all, leave_all};
use super::store::{Data, StoreCell};
use super::typed;
use super::view::{heap_full, is_heap_full, unknown_function};
use crate::error::{Class, Error, Kind, Quoted, Result};
use crate::inject::point;
use crate::linker::Linked;
use crate::module::Function;
use crate::trap;
use crate::value::{Type, Value};

/// Runs a request to its end; `linked` is there to instantiate.
pub(super) async fn execute(
    cell: &mut StoreCell,
    linked: Option<Arc<Linked>>,
    request: Request,
) -> Outcome {
    point("execute");
    // The last deadline may be long past, and would cost a yield at once.
    cell.store.set_epoch_deadline(1);
    match (request, linked) {
        // Boxed: the future of a call should be small, for it is moved.
        (Request::Instantiate, Some(linked)) => Box::pin(instantiate(cell, &linked)).await,
        (request, _) => {
            // Without a limit of its own a call has all the fuel there is.
            let fuel = request.fuel().or(cell.counts_fuel.then_some(u64::MAX));
            if let Some(fuel) = fuel {
                set_fuel(&mut cell.store.as_context_mut(), fuel)?;
            }
            perform(cell.store.as_context_mut(), request).await
        }
    }
}

/// Runs a request inside a host call. Its own fuel is not that of the call around it; without, it
/// uses what that one has left.
pub(super) async fn nested(
    control: &Control,
    job: JobId,
    mut store: StoreContextMut<'_, Data>,
    request: Request,
) -> Outcome {
    let Some(fuel) = request.fuel() else {
        return stoppable(control, job, pin!(perform(store, request))).await;
    };
    let left = store.get_fuel().unwrap_or_default();
    set_fuel(&mut store, fuel)?;
    let outcome = stoppable(control, job, pin!(perform(store.as_context_mut(), request))).await;
    set_fuel(&mut store, left)?;
    outcome
}

/// Runs a request that needs an instance: of an idle guest, or inside one of its host calls.
async fn perform(store: StoreContextMut<'_, Data>, request: Request) -> Outcome {
    match request {
        Request::Instantiate => Err(Error::internal("an instance is made once")),
        Request::Call { function, args, .. } => call(store, &Callee::Export(function), &args).await,
        Request::CallRef { func, args, .. } => call(store, &Callee::Ref(func), &args).await,
    }
}

/// The outcome of `work`, or the reason why `job` must stop: dropping the work unwinds the guest's
/// stack, so that the store is as usable as after a trap. Pinned by the caller: a future that takes
/// another one holds room for it twice.
pub(super) async fn stoppable(
    control: &Control,
    job: JobId,
    mut work: Pin<&mut impl Future<Output = Outcome>>,
) -> Outcome {
    poll_fn(|cx| match control.cancelled(job).filter(|_| !visiting()) {
        Some(error) => Poll::Ready(Err(error)),
        None => work.as_mut().poll(cx),
    })
    .await
}

/// Makes the instance of a store.
pub(super) async fn instantiate(cell: &mut StoreCell, linked: &Linked) -> Outcome {
    if cell.counts_fuel {
        set_fuel(&mut cell.store.as_context_mut(), u64::MAX)?;
    }
    let made = match linked {
        Linked::Alone(pre) => {
            let made = pre.instantiate_async(&mut cell.store).await;
            made.map_err(|error| trap::from_wasmtime(&error))
        }
        // Boxed: the runs of other guests shall not grow by it.
        Linked::Chain(chain) => Box::pin(chain::instantiate(cell, chain)).await,
    };
    match made {
        Ok(instance) => cell.store.data_mut().instance = Some(instance),
        Err(error) => drop(exit_is_success(error).map_err(|error| limit_hit(cell, error))?),
    }
    Ok(Vec::new())
}

/// A limit that refused a memory or a table is the reason; Wasmtime's message only says that it failed.
fn limit_hit(cell: &mut StoreCell, error: Error) -> Error {
    let hit = cell.store.data_mut().limiter.take_hit();
    match hit {
        Some(hit) if error.class == Class::Internal => hit,
        _ if error.class == Class::Internal => {
            Error { class: Class::Instantiate, kind: Kind::OutOfMemory, ..error }
        }
        _ => error,
    }
}

fn set_fuel(store: &mut StoreContextMut<'_, Data>, fuel: u64) -> Result<()> {
    store.set_fuel(fuel).map_err(|_| {
        Error::option(Class::Call, "fuel", "the module was not compiled with the option fuel")
    })?;
    store.data().control.meter.set_fuel(fuel);
    Ok(())
}

async fn call(mut store: StoreContextMut<'_, Data>, callee: &Callee, args: &[Value]) -> Outcome {
    store.data().control.meter.count_call();
    // What is rooted for the call goes with it.
    let mut scope = RootScope::new(&mut store);
    let (func, arity) = callee.find(&mut scope)?;
    let typed = match callee {
        Callee::Export(function) => {
            typed::call(scope.as_context_mut(), func, &function.signature, args)
        }
        Callee::Ref(_) => Err(scope.as_context_mut()),
    };
    match typed {
        Ok(typed) => typed.await,
        Err(store) => untyped(store, func, arity, callee, args).await,
    }
    .or_else(exit_is_success)
}

/// A call of a function of any type.
async fn untyped(
    mut store: StoreContextMut<'_, Data>,
    func: Func,
    arity: usize,
    callee: &Callee,
    args: &[Value],
) -> Outcome {
    let params = match args.iter().map(Value::to_number).collect::<Option<Vec<Val>>>() {
        Some(numbers) => numbers,
        None => {
            let types: Vec<Type> = func.ty(&store).params().map(|ty| Type::of(&ty)).collect();
            enter_all(&mut store, args, &types, Class::Call, || callee.to_string())?
        }
    };
    let mut results = vec![Val::I32(0); arity];
    match func.call_async(&mut store, &params, &mut results).await {
        Ok(()) => leave_all(&mut store, &results),
        Err(error) => Err(failed(&mut store, &error)),
    }
}

/// What a call that failed answers.
pub(super) fn failed(store: &mut StoreContextMut<'_, Data>, error: &wasmtime::Error) -> Error {
    // An exception that nobody caught would stay rooted.
    store.take_pending_exception();
    if is_heap_full(error) {
        return heap_full(store.data_mut(), error);
    }
    trap::from_wasmtime(error)
}

/// The function that is called.
enum Callee {
    Export(Arc<Function>),
    Ref(Ref),
}

/// As messages name it.
impl fmt::Display for Callee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Callee::Export(function) => write!(f, "the function {}", Quoted(&function.name)),
            Callee::Ref(_) => f.write_str("the referenced function"),
        }
    }
}

impl Callee {
    /// The function, and how many results it has.
    fn find(&self, mut store: impl AsContextMut<Data = Data>) -> Result<(Func, usize)> {
        match self {
            Callee::Export(function) => {
                let func = exported(&mut store, function);
                let func = func.ok_or_else(|| unknown_function(&function.name))?;
                Ok((func, function.signature.results.len()))
            }
            Callee::Ref(reference) => {
                let control = &store.as_context().data().control;
                let func = reference.func_in(control, "the function")?;
                Ok((func, func.ty(&store).results().len()))
            }
        }
    }
}

/// Its place and its type are the module's: asking the store for them costs as much as a short call.
fn exported(mut store: impl AsContextMut<Data = Data>, function: &Function) -> Option<Func> {
    let instance = store.as_context().data().instance?;
    instance.get_module_export(&mut store, &function.place)?.into_func()
}

/// `proc_exit(0)` is an end like any other.
fn exit_is_success(error: Error) -> Outcome {
    if error.status == Some(0) { Ok(Vec::new()) } else { Err(error) }
}
