//! Wasmtime guests as polled state machines, with linear memory restored from images.
//!
//! - [`module::Module`]: compiled code and the images of its memories.
//! - [`template::Template`]: what instances of one sort are made of.
//! - [`links::Chain`]: several modules that share a store, each serving those after it.
//! - [`guest::Guest`]: a live instance, polled by a runner; [`guest::Step`]: what a poll ended with.
//! - [`cache::Entry`]: an artifact in a directory that processes and nodes share.
//! - [`memory::Pool`]: slots for linear memories; a slot is restored before its next tenant comes.
//! - [`preinit::Instrumented`]: a module made ready for its init run.
//! - [`stream`]: what an instance is sent, and where its output goes.
//! - [`runner::thread`]: polls guests on OS threads.
//! - [`inject`]: panics on demand, for tests.
//!
//! Absent here: Erlang terms, processes, messages, defaults of options.

pub mod allocator;
pub mod cache;
mod clock;
pub mod counts;
pub mod engine;
pub mod error;
pub mod guest;
pub mod inject;
pub mod integer;
pub mod linker;
pub mod links;
pub mod mac;
pub mod memory;
pub mod module;
pub mod options;
#[cfg_attr(not(feature = "compiler"), path = "preinit/absent.rs")]
pub mod preinit;
pub mod reactor;
pub mod runner;
mod shard;
mod stack;
pub mod stream;
pub mod template;
pub mod ticker;
pub mod trap;
pub mod value;
pub mod wasi;

pub use error::{Class, Error, Kind, Result};

/// Whether this build compiles. One that does not loads artifacts of one that does; all else answers
/// `unavailable`.
pub const HAS_COMPILER: bool = cfg!(feature = "compiler");

/// The version of Wasmtime; a test compares it with the lock file.
pub const WASMTIME_VERSION: &str = "48.0.8";

#[cfg(test)]
mod tests {
    /// The version that is told is the version that is built in.
    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let lock = include_str!("../../../Cargo.lock");
        let entry = format!("name = \"wasmtime\"\nversion = \"{}\"", super::WASMTIME_VERSION);
        assert!(lock.contains(&entry));
    }
}
