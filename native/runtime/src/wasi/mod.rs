//! WASI preview 1 for core modules, over wasmtime-wasi. Nothing is granted that an option does not name.
//!
//! - [`WasiTemplate`]: options checked and directories opened once; makes contexts fast.
//! - [`Wasi`]: the context of one instance, kept in its store's data.
//! - [`Captured`]: what the guest wrote, readable while it runs.
//! - [`add_to_linker`]: the imports, with those replaced that would block the polling thread, leak
//!   the wall clock or let a guest use up the host.

mod clocks;
mod dirs;
mod fault;
mod fifo;
mod files;
mod inherited;
mod linker;
mod poll;
mod random;
mod stdio;
mod streams;
mod template;

pub use fault::fault;
pub use inherited::Inherited;
pub use linker::{add_to_linker, add_unstable_to_linker, exit_status, refusal};
pub use stdio::Input;
pub(crate) use streams::yield_once;
pub use streams::{Capture, Captured, CapturedOutput, Target};
pub use template::{MAX_OPEN_FILES, Streams, Wasi, WasiTemplate};
