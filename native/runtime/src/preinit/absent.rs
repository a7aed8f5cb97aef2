//! What stands for `preinit` in a build without a compiler: nothing can be instrumented, so there is
//! never a snapshot to take.

use wasmtime::{AsContextMut, Instance};

use crate::error::{Class, Error, Result};

/// What becomes of exports.
#[derive(Clone, Debug, Default)]
pub struct SnapshotOptions {
    /// Names of the exports that the init run called.
    pub ran: Vec<String>,
    /// Names of further exports to remove.
    pub remove_exports: Vec<String>,
}

/// A module made ready for its init run: there is none.
pub enum Instrumented {}

/// # Errors
/// Always class `preinit`, kind `unavailable`.
pub fn instrument(_: &[u8]) -> Result<Instrumented> {
    Err(Error::unavailable(Class::Preinit))
}

impl Instrumented {
    pub fn wasm(&self) -> &[u8] {
        match *self {}
    }

    /// Never called.
    pub async fn snapshot<T: Send + 'static>(
        &self,
        _: impl AsContextMut<Data = T>,
        _: &Instance,
        _: &SnapshotOptions,
    ) -> Result<Vec<u8>> {
        match *self {}
    }
}
