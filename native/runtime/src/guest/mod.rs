//! A guest is a state machine that is polled: store, instance, queue and the call under way.
//!
//! - `Guest`: the handle. `submit` asks, `poll` moves it on, `access` enters it between two polls,
//!   `destroy` ends it.
//! - `Control`: what other threads touch while it runs.
//! - `Step`: what a poll ended with.
//! - `Ref`: a reference to what lives in its store.
//!
//! Nothing here sends a message, spawns a thread or knows a process.

mod answer;
mod chain;
mod control;
mod dependent;
mod end;
mod execute;
mod fit;
mod host_call;
mod job;
mod make;
mod meter;
mod number;
mod overdue;
mod poll;
mod queue;
mod refs;
mod serve;
mod state;
mod store;
mod type_name;
mod typed;
mod view;

pub(crate) use chain::needs;
pub(crate) use control::destroyed;
pub use control::{Control, Lent};
pub use end::Destroyed;
pub use host_call::{HostCall, HostImport};
pub use job::{Client, Job, JobId, Outcome, Reason, Request, panicked};
pub use meter::{Activity, Meter, Usage};
pub use number::next_id;
pub use poll::{Guest, Step};
pub use refs::{Datum, Ref, RefKind};
pub use serve::Awaited;
pub use state::Submitted;
pub use store::Data;
pub use type_name::{FuncName, TypeName};
pub use view::{Elements, MemorySize, View};
pub(crate) use view::{shared_bytes, unknown_function, unknown_global, unknown_table};

pub(crate) use host_call::call as host_call;
