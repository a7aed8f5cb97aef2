//! The guest core without a VM: polled by hand, and by the thread runner.

mod dependent;
mod destroy;
mod host;
mod limits;
mod links;
mod poll;
mod queue;
mod refs;
mod serve;
mod stop;
mod streams;
mod support;
mod threads;
mod typed;
