//! Wasmtime guests as polled state machines, with linear memory restored from images.

pub mod error;
pub mod options;
pub mod value;

pub use error::{Class, Error, Kind, Result};
