//! What stands for `source` in a build without a compiler: the same functions, all `unavailable`.

use super::Module;
use crate::engine::Engine;
use crate::error::{Class, Error, Result};
use crate::options::CompileOptions;

/// # Errors
/// Always class `compile`, kind `unavailable`.
pub fn parse_wat(_: &[u8]) -> Result<Vec<u8>> {
    Err(Error::unavailable(Class::Compile))
}

/// # Errors
/// Always class `compile`, kind `unavailable`.
pub fn validate(_: &Engine, _: &[u8]) -> Result<()> {
    Err(Error::unavailable(Class::Compile))
}

pub(super) fn compile(_: &[u8], _: &CompileOptions) -> Result<Module> {
    Err(Error::unavailable(Class::Compile))
}

pub(super) fn code(_: &wasmtime::Module) -> Result<Vec<u8>> {
    Err(Error::unavailable(Class::Compile))
}
