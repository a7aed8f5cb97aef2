//! Errors as maps.

use rustler::{Atom, Encoder, Env, Term};
use wasmtime_beam::error::{Error, Frame};

use crate::atoms;

/// `{error, #{class, kind, message, ...}}`.
pub fn encode<'a>(env: Env<'a>, error: &Error) -> Term<'a> {
    let mut pairs = vec![
        (atoms::class().encode(env), atom(env, error.class.as_str())),
        (atoms::kind().encode(env), atom(env, error.kind.as_str())),
        (atoms::message().encode(env), error.message.encode(env)),
    ];
    if let Some(status) = error.status {
        pairs.push((atoms::status().encode(env), status.encode(env)));
    }
    if let Some(key) = error.key {
        pairs.push((atoms::key().encode(env), atom(env, key)));
    }
    if error.class == wasmtime_beam::Class::Trap {
        let frames: Vec<Term<'a>> = error.trace.iter().map(|frame| trace(env, frame)).collect();
        pairs.push((atoms::trace().encode(env), frames.encode(env)));
    }
    (atoms::error(), super::map::from_pairs(env, &pairs)).encode(env)
}

fn trace<'a>(env: Env<'a>, frame: &Frame) -> Term<'a> {
    let offset = frame.func_offset.map(|offset| offset as u64);
    super::map::from_pairs(
        env,
        &[
            (atoms::func_index().encode(env), frame.func_index.encode(env)),
            (atoms::func_offset().encode(env), or_undefined(env, offset)),
            (atoms::func_name().encode(env), or_undefined(env, frame.func_name.as_deref())),
            (atoms::module_name().encode(env), or_undefined(env, frame.module_name.as_deref())),
        ],
    )
}

fn or_undefined<'a>(env: Env<'a>, value: Option<impl Encoder>) -> Term<'a> {
    value.map_or_else(|| atoms::undefined().encode(env), |value| value.encode(env))
}

/// An atom from one of the runtime's tables.
pub fn atom<'a>(env: Env<'a>, name: &str) -> Term<'a> {
    Atom::from_str(env, name).map_or_else(|_| atoms::undefined().encode(env), |a| a.encode(env))
}
