//! How a memory's growth failed, told apart from what Wasmtime says by itself.
//! Rule: a store's limiter granted a growth that fails with this, and takes the grant back.

use std::fmt;

/// A growth that was under way and did not come about.
#[derive(Debug)]
pub(crate) struct NotGrown(String);

impl NotGrown {
    /// The error that a memory answers to Wasmtime, which hands it to the limiter as it is.
    pub(super) fn because(why: impl fmt::Display) -> wasmtime::Error {
        wasmtime::Error::new(NotGrown(why.to_string()))
    }

    /// True when `error` is of a growth that was under way.
    pub(crate) fn is(error: &wasmtime::Error) -> bool {
        error.is::<NotGrown>()
    }
}

impl fmt::Display for NotGrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotGrown {}
