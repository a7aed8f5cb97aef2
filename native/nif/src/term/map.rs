//! Building and reading maps whose keys are known.

use rustler::{Atom, Decoder, Env, NifResult, Term};

/// A map of pairs with distinct keys.
pub fn from_pairs<'a>(env: Env<'a>, pairs: &[(Term<'a>, Term<'a>)]) -> Term<'a> {
    let (keys, values): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    Term::map_from_term_arrays(env, &keys, &values).unwrap_or_else(|_| Term::map_new(env))
}

/// The value of a key; its absence, or a value of another type, is a `badarg`: maps come complete
/// and checked from `wasmtime_options.erl`.
pub fn get<'a, T: Decoder<'a>>(map: Term<'a>, key: Atom) -> NifResult<T> {
    map.map_get(key)?.decode()
}
