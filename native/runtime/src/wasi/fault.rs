//! What a guest did wrong in a call of WASI, as a trap of its own kind.
//! A guest's mistake must never look like a bug of this library.

use crate::error::{Class, Error, Kind};
use wiggle::GuestError;

/// The trap of an error that the guest's arguments caused, without a trace; `None` for any other.
pub fn fault(error: &wasmtime::Error) -> Option<Error> {
    let fault = innermost(error.downcast_ref::<GuestError>()?);
    Some(Error::new(Class::Trap, kind(fault), format!("a call of WASI: {fault}")))
}

fn innermost(mut fault: &GuestError) -> &GuestError {
    while let GuestError::InFunc { err, .. } = fault {
        fault = err;
    }
    fault
}

fn kind(fault: &GuestError) -> Kind {
    match fault {
        GuestError::PtrOverflow | GuestError::PtrOutOfBounds(_) => Kind::MemoryOutOfBounds,
        GuestError::PtrNotAligned(..) => Kind::HeapMisaligned,
        GuestError::InvalidFlagValue(_)
        | GuestError::InvalidEnumValue(_)
        | GuestError::SliceLengthsDiffer
        | GuestError::InFunc { .. }
        | GuestError::InvalidUtf8(_)
        | GuestError::TryFromIntError(_) => Kind::InvalidArgument,
    }
}
