//! What a failed run means: one table from Wasmtime's trap codes to kinds, and one function from
//! Wasmtime's errors to ours.

use wasmtime::{ThrownException, Trap, WasmBacktrace};

use crate::error::{Class, Error, Frame, Kind};
use crate::wasi;

/// Every trap code with its kind. A test walks the codes, so that none is without a kind.
const KINDS: &[(Trap, Kind)] = &[
    (Trap::StackOverflow, Kind::StackOverflow),
    (Trap::MemoryOutOfBounds, Kind::MemoryOutOfBounds),
    (Trap::HeapMisaligned, Kind::HeapMisaligned),
    (Trap::TableOutOfBounds, Kind::TableOutOfBounds),
    (Trap::IndirectCallToNull, Kind::IndirectCallToNull),
    (Trap::BadSignature, Kind::BadSignature),
    (Trap::IntegerOverflow, Kind::IntegerOverflow),
    (Trap::IntegerDivisionByZero, Kind::IntegerDivisionByZero),
    (Trap::BadConversionToInteger, Kind::BadConversionToInteger),
    (Trap::UnreachableCodeReached, Kind::Unreachable),
    (Trap::Interrupt, Kind::Interrupt),
    (Trap::OutOfFuel, Kind::OutOfFuel),
    (Trap::AtomicWaitNonSharedMemory, Kind::AtomicWaitNonSharedMemory),
    (Trap::NullReference, Kind::NullReference),
    (Trap::ArrayOutOfBounds, Kind::ArrayOutOfBounds),
    (Trap::AllocationTooLarge, Kind::AllocationTooLarge),
    (Trap::CastFailure, Kind::CastFailure),
    (Trap::CannotEnterComponent, Kind::CannotEnterComponent),
    (Trap::NoAsyncResult, Kind::NoAsyncResult),
    (Trap::UnhandledTag, Kind::UnhandledTag),
    (Trap::ContinuationAlreadyConsumed, Kind::ContinuationAlreadyConsumed),
    (Trap::DisabledOpcode, Kind::DisabledOpcode),
    (Trap::AsyncDeadlock, Kind::AsyncDeadlock),
    (Trap::CannotLeaveComponent, Kind::CannotLeaveComponent),
    (Trap::CannotBlockSyncTask, Kind::CannotBlockSyncTask),
    (Trap::InvalidChar, Kind::InvalidChar),
    (Trap::DebugAssertStringEncodingFinished, Kind::DebugAssertStringEncodingFinished),
    (Trap::DebugAssertEqualCodeUnits, Kind::DebugAssertEqualCodeUnits),
    (Trap::DebugAssertPointerAligned, Kind::DebugAssertPointerAligned),
    (Trap::DebugAssertUpperBitsUnset, Kind::DebugAssertUpperBitsUnset),
    (Trap::StringOutOfBounds, Kind::StringOutOfBounds),
    (Trap::ListOutOfBounds, Kind::ListOutOfBounds),
    (Trap::InvalidDiscriminant, Kind::InvalidDiscriminant),
    (Trap::UnalignedPointer, Kind::UnalignedPointer),
    (Trap::TaskCancelNotCancelled, Kind::TaskCancelNotCancelled),
    (Trap::TaskCancelOrReturnTwice, Kind::TaskCancelOrReturnTwice),
    (Trap::SubtaskCancelAfterTerminal, Kind::SubtaskCancelAfterTerminal),
    (Trap::TaskReturnInvalid, Kind::TaskReturnInvalid),
    (Trap::WaitableSetDropHasWaiters, Kind::WaitableSetDropHasWaiters),
    (Trap::SubtaskDropNotResolved, Kind::SubtaskDropNotResolved),
    (Trap::ThreadNewIndirectInvalidType, Kind::ThreadNewIndirectInvalidType),
    (Trap::ThreadNewIndirectUninitialized, Kind::ThreadNewIndirectUninitialized),
    (Trap::BackpressureOverflow, Kind::BackpressureOverflow),
    (Trap::UnsupportedCallbackCode, Kind::UnsupportedCallbackCode),
    (Trap::CannotResumeThread, Kind::CannotResumeThread),
    (Trap::ConcurrentFutureStreamOp, Kind::ConcurrentFutureStreamOp),
    (Trap::ReferenceCountOverflow, Kind::ReferenceCountOverflow),
    (Trap::StreamOpTooBig, Kind::StreamOpTooBig),
    (Trap::WaitableSyncAndAsync, Kind::WaitableSyncAndAsync),
    (Trap::UncaughtException, Kind::UncaughtException),
];

/// The kind of a trap code.
pub fn kind(trap: Trap) -> Kind {
    KINDS.iter().find(|(code, _)| *code == trap).map_or(Kind::Internal, |(_, kind)| *kind)
}

/// What a call, or an instantiation, that failed answers.
pub fn from_wasmtime(error: &wasmtime::Error) -> Error {
    if let Some(ours) = error.downcast_ref::<Error>() {
        return Error { trace: trace(error), ..ours.clone() };
    }
    if let Some(status) = wasi::exit_status(error) {
        let message = format!("the guest exited with status {status}");
        return Error { status: Some(status), ..Error::new(Class::Exit, Kind::Exit, message) };
    }
    if error.is::<ThrownException>() {
        let message = "an exception that the guest threw was not caught";
        let error = Error {
            trace: trace(error),
            ..Error::new(Class::Trap, Kind::UncaughtException, message)
        };
        return error;
    }
    if let Some(fault) = wasi::fault(error) {
        return Error { trace: trace(error), ..fault };
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => {
            let error = Error { trace: trace(error), ..Error::new(Class::Trap, kind(*trap), "") };
            Error { message: trap.to_string(), ..error }
        }
        None => {
            let known = wasi::refusal(error);
            let meant = known.unwrap_or_else(|| Error::internal(root_cause(error)));
            Error { trace: trace(error), ..meant }
        }
    }
}

/// The innermost message: the outer ones only repeat the backtrace.
fn root_cause(error: &wasmtime::Error) -> String {
    error.root_cause().to_string()
}

fn trace(error: &wasmtime::Error) -> Vec<Frame> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return Vec::new() };
    backtrace
        .frames()
        .iter()
        .map(|frame| Frame {
            func_index: frame.func_index(),
            func_offset: frame.func_offset(),
            func_name: frame.func_name().map(str::to_owned),
            module_name: frame.module().name().map(str::to_owned),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code that Wasmtime can encode has a kind of its own, with the same number of both.
    #[test]
    fn every_trap_code_has_its_own_kind() {
        let codes: Vec<Trap> = (0..=u8::MAX).filter_map(Trap::from_u8).collect();
        assert_eq!(codes.len(), KINDS.len());
        let mut kinds: Vec<&str> = codes.iter().map(|code| kind(*code).as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), codes.len());
        assert!(!kinds.contains(&"internal"));
    }
}
