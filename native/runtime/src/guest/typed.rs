//! Calls of functions with few parameters, of integers, and at most one result: what most exports are.
//! Wasmtime looks the type up once instead of twice, and values take no detour through lists.

use std::pin::Pin;

use wasmtime::{Func, StoreContextMut, TypedFunc, WasmParams, WasmResults};

use super::execute::failed;
use super::job::Outcome;
use super::store::Data;
use crate::value::{Signature, Type, Value};

/// Boxed: whoever polls the guest goes through one of these, not through a choice among all.
type Called<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A call of `func`, which has this signature; the store again for one that is not among those.
pub(super) fn call<'a>(
    store: StoreContextMut<'a, Data>,
    func: Func,
    signature: &Signature,
    args: &[Value],
) -> Result<Called<'a>, StoreContextMut<'a, Data>> {
    macro_rules! by_type {
        ($(($($arg:ident: $param:ident),*))*) => {
            match (&signature.params[..], args, &signature.results[..]) {
                $(
                    // SAFETY: in each arm the Rust types are those of the signature.
                    ([$(Type::$param),*], &[$(Value::$param($arg)),*], []) => {
                        Ok(unsafe { typed(store, func, ($($arg,)*), |()| Vec::new()) })
                    }
                    ([$(Type::$param),*], &[$(Value::$param($arg)),*], [Type::I32]) => {
                        Ok(unsafe { typed(store, func, ($($arg,)*), |it| vec![Value::I32(it)]) })
                    }
                    ([$(Type::$param),*], &[$(Value::$param($arg)),*], [Type::I64]) => {
                        Ok(unsafe { typed(store, func, ($($arg,)*), |it| vec![Value::I64(it)]) })
                    }
                )*
                _ => Err(store),
            }
        };
    }
    by_type! {
        ()
        (a: I32)
        (a: I64)
        (a: I32, b: I32)
        (a: I32, b: I64)
        (a: I64, b: I32)
        (a: I64, b: I64)
        (a: I32, b: I32, c: I32)
        (a: I32, b: I32, c: I32, d: I32)
    }
}

/// # Safety
/// `func` takes these parameters and gives these results.
unsafe fn typed<P, R>(
    mut store: StoreContextMut<'_, Data>,
    func: Func,
    params: P,
    values: fn(R) -> Vec<Value>,
) -> Called<'_>
where
    P: WasmParams + Sync + 'static,
    R: WasmResults + Sync + 'static,
{
    // SAFETY: the caller's promise.
    let func = unsafe { TypedFunc::<P, R>::new_unchecked(&store, func) };
    Box::pin(async move {
        let called = func.call_async(&mut store, params).await;
        called.map(values).map_err(|error| failed(&mut store, &error))
    })
}
