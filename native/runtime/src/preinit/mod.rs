//! Pre-initialization: run a module's set-up once, keep the state it left as a plain module.
//!
//! A run has three parts, of which the middle one belongs to the caller:
//! 1. [`instrument`] refuses what cannot be carried and adds exports that show the module's state;
//! 2. the caller instantiates [`Instrumented::wasm`] like any other module and runs its init calls;
//! 3. [`Instrumented::snapshot`] reads the instance and writes the result.
//!
//! Wizer writes memories and globals. It is shown a *skeleton* of the module (bodies replaced by
//! `unreachable`, no names, no tables), because it refuses every module that contains `table.set`,
//! `data.drop` and the like. What it cannot carry is done here: tables are compared with what their
//! segments say and get further segments, dropped segments are found by *probes*. Of a module, only
//! sections that must change are rewritten; code and custom sections stay as they are, byte by byte.
//!
//! | file | job |
//! |---|---|
//! | `sections` | a module as a list of raw sections |
//! | `inspect` | what the module has, and every refusal |
//! | `skeleton` | the module as Wizer sees it |
//! | `instrument` | the module that runs |
//! | `probe` | which passive segments were dropped |
//! | `elements` | element segments and constant expressions |
//! | `tables` | what tables hold after the init calls |
//! | `retable` | tables and element segments of the result |
//! | `state` | the instance as Wizer reads it |
//! | `snapshot` | the result |

mod elements;
mod inspect;
mod instrument;
mod probe;
mod retable;
mod sections;
mod skeleton;
mod snapshot;
mod state;
mod tables;

pub use instrument::{Instrumented, instrument};
pub use snapshot::SnapshotOptions;
