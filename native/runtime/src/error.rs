//! Errors are data: a class, a kind and a message, plus what the kind calls for.
//! Every class and kind that a user can see stands in this file and nowhere else.

use std::fmt;

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($variant:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($variant,)* }

        impl $name {
            /// Every value, in the order of the documented table.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The name a user sees (an atom in Erlang).
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

names! {
    /// What the user was doing, or what failed.
    Class {
        Compile => "compile",
        Link => "link",
        Instantiate => "instantiate",
        Limit => "limit",
        Pool => "pool",
        Call => "call",
        Memory => "memory",
        Global => "global",
        Table => "table",
        Ref => "ref",
        Trap => "trap",
        Exit => "exit",
        Host => "host",
        Stream => "stream",
        Preinit => "preinit",
        Internal => "internal",
    }
}

names! {
    /// What exactly went wrong.
    Kind {
        Badarg => "badarg",
        Badarity => "badarity",
        Busy => "busy",
        Destroyed => "destroyed",
        UnknownExport => "unknown_export",
        WrongInstance => "wrong_instance",
        Immutable => "immutable",
        OutOfBounds => "out_of_bounds",
        Malformed => "malformed",
        Invalid => "invalid",
        Unsupported => "unsupported",
        UnsupportedImport => "unsupported_import",
        UnsupportedType => "unsupported_type",
        UnknownImport => "unknown_import",
        IncompatibleImport => "incompatible_import",
        Cycle => "cycle",
        Incompatible => "incompatible",
        Corrupted => "corrupted",
        Untrusted => "untrusted",
        File => "file",
        TooManyConfigurations => "too_many_configurations",
        PoolTooLarge => "pool_too_large",
        PoolExhausted => "pool_exhausted",
        // Of pools of instances, which are Erlang processes.
        Overload => "overload",
        Closed => "closed",
        Unavailable => "unavailable",
        MemoryLimit => "memory_limit",
        TableLimit => "table_limit",
        InstanceLimit => "instance_limit",
        OutOfMemory => "out_of_memory",
        Exit => "exit",
        InboxFull => "inbox_full",
        HostError => "host_error",
        HostTimeout => "host_timeout",
        HostDown => "host_down",
        ThreadLimit => "thread_limit",
        // Of the Erlang node.
        ProcessLimit => "process_limit",
        Init => "init",
        TableChanged => "table_changed",
        Internal => "internal",
        Panic => "panic",
        // Traps: one for every code of Wasmtime's `Trap` (the mapping is in trap.rs), and our own.
        Timeout => "timeout",
        StackOverflow => "stack_overflow",
        MemoryOutOfBounds => "memory_out_of_bounds",
        HeapMisaligned => "heap_misaligned",
        TableOutOfBounds => "table_out_of_bounds",
        IndirectCallToNull => "indirect_call_to_null",
        BadSignature => "bad_signature",
        IntegerOverflow => "integer_overflow",
        IntegerDivisionByZero => "integer_division_by_zero",
        BadConversionToInteger => "bad_conversion_to_integer",
        Unreachable => "unreachable",
        Interrupt => "interrupt",
        OutOfFuel => "out_of_fuel",
        AtomicWaitNonSharedMemory => "atomic_wait_non_shared_memory",
        NullReference => "null_reference",
        ArrayOutOfBounds => "array_out_of_bounds",
        AllocationTooLarge => "allocation_too_large",
        CastFailure => "cast_failure",
        CannotEnterComponent => "cannot_enter_component",
        NoAsyncResult => "no_async_result",
        UnhandledTag => "unhandled_tag",
        ContinuationAlreadyConsumed => "continuation_already_consumed",
        DisabledOpcode => "disabled_opcode",
        AsyncDeadlock => "async_deadlock",
        CannotLeaveComponent => "cannot_leave_component",
        CannotBlockSyncTask => "cannot_block_sync_task",
        InvalidChar => "invalid_char",
        DebugAssertStringEncodingFinished => "debug_assert_string_encoding_finished",
        DebugAssertEqualCodeUnits => "debug_assert_equal_code_units",
        DebugAssertPointerAligned => "debug_assert_pointer_aligned",
        DebugAssertUpperBitsUnset => "debug_assert_upper_bits_unset",
        StringOutOfBounds => "string_out_of_bounds",
        ListOutOfBounds => "list_out_of_bounds",
        InvalidDiscriminant => "invalid_discriminant",
        UnalignedPointer => "unaligned_pointer",
        TaskCancelNotCancelled => "task_cancel_not_cancelled",
        TaskCancelOrReturnTwice => "task_cancel_or_return_twice",
        SubtaskCancelAfterTerminal => "subtask_cancel_after_terminal",
        TaskReturnInvalid => "task_return_invalid",
        WaitableSetDropHasWaiters => "waitable_set_drop_has_waiters",
        SubtaskDropNotResolved => "subtask_drop_not_resolved",
        ThreadNewIndirectInvalidType => "thread_new_indirect_invalid_type",
        ThreadNewIndirectUninitialized => "thread_new_indirect_uninitialized",
        BackpressureOverflow => "backpressure_overflow",
        UnsupportedCallbackCode => "unsupported_callback_code",
        CannotResumeThread => "cannot_resume_thread",
        ConcurrentFutureStreamOp => "concurrent_future_stream_op",
        ReferenceCountOverflow => "reference_count_overflow",
        StreamOpTooBig => "stream_op_too_big",
        WaitableSyncAndAsync => "waitable_sync_and_async",
        UncaughtException => "uncaught_exception",
        InvalidArgument => "invalid_argument",
    }
}

/// One frame of a trap's trace, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Index of the function in its module.
    pub func_index: u32,
    /// Offset of the instruction from the start of the function, in bytes.
    pub func_offset: Option<usize>,
    /// Name from the name section.
    pub func_name: Option<String>,
    /// Name of the module from its name section.
    pub module_name: Option<String>,
}

/// A failure as the user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub class: Class,
    pub kind: Kind,
    pub message: String,
    /// The status of a WASI exit.
    pub status: Option<i32>,
    /// The wasm frames of a trap, innermost first.
    pub trace: Vec<Frame>,
    /// The option at fault.
    pub key: Option<&'static str>,
}

pub type Result<T> = std::result::Result<T, Error>;

/// Bytes of a message, at most: names that guests and users choose may be as long as they like.
const LONGEST_MESSAGE: usize = 2000;

fn cut(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        message.push_str("...");
    }
    message
}

/// A name as messages show it: quoted, and no more of it than a message holds.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.floor_char_boundary(LONGEST_MESSAGE);
        write!(f, "{:?}", &self.0[..shown])?;
        if shown < self.0.len() { f.write_str("...") } else { Ok(()) }
    }
}

impl Error {
    pub fn new(class: Class, kind: Kind, message: impl Into<String>) -> Self {
        let message = cut(message.into());
        Error { class, kind, message, status: None, trace: Vec::new(), key: None }
    }

    /// A bug of ours, reported instead of panicking.
    pub fn internal(message: impl Into<String>) -> Self {
        Error::new(Class::Internal, Kind::Internal, message)
    }

    /// This build leaves the compiler out.
    #[cfg(not(feature = "compiler"))]
    pub(crate) fn unavailable(class: Class) -> Self {
        let message = "this build has no compiler: it loads artifacts of one that has";
        Error::new(class, Kind::Unavailable, message)
    }

    /// An option that cannot be honoured, named by its key.
    pub fn option(class: Class, key: &'static str, message: impl Into<String>) -> Self {
        Error { key: Some(key), ..Error::new(class, Kind::Badarg, message) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}: {}", self.class.as_str(), self.kind.as_str(), self.message)
    }
}

impl std::error::Error for Error {}
