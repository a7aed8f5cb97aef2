//! What an instance is sent. Copying many bytes runs on a dirty scheduler.

use rustler::{Binary, Env, ResourceArc, Term};

use super::{done, timed};
use crate::resource::Instance;

#[rustler::nif]
fn stream_send<'a>(env: Env<'a>, instance: ResourceArc<Instance>, data: Binary<'a>) -> Term<'a> {
    send(env, &instance, &data)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn stream_send_dirty<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    data: Binary<'a>,
) -> Term<'a> {
    send(env, &instance, &data)
}

fn send<'a>(env: Env<'a>, instance: &Instance, data: &[u8]) -> Term<'a> {
    timed(env, || done(env, instance.guest().inbox().send(data)))
}

#[rustler::nif]
fn stream_close<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    timed(env, || done(env, instance.guest().inbox().close()))
}
