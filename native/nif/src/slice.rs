//! How much of its turn a process uses in a NIF call. Rule: no clock is read; a slice of the ticker is the
//! whole turn of a process, so that on average the time is right however short the calls are.

use rustler::Env;
use rustler::schedule::consume_timeslice;
use wasmtime_beam::ticker::Slice;

/// Runs `f`, part of a NIF call with `env`. When a slice ends meanwhile, the process is scheduled out after
/// the call.
pub fn in_slice<R>(env: Env<'_>, f: impl FnOnce(&Slice) -> R) -> R {
    let slice = Slice::begin();
    let result = f(&slice);
    if slice.is_over() {
        consume_timeslice(env, 100);
    }
    result
}
