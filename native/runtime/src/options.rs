//! Typed options without defaults: defaults, checks and messages live in `wasmtime_options.erl`,
//! which hands over complete maps. (`native/floor` and tests spell theirs out.)

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Optimization of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptLevel {
    None,
    Speed,
    SpeedAndSize,
}

macro_rules! proposals {
    ($($variant:ident => $text:literal,)*) => {
        /// A WebAssembly proposal that can be turned on or off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Proposal { $($variant,)* }

        impl Proposal {
            pub const ALL: &'static [Proposal] = &[$(Proposal::$variant,)*];

            /// The name a user writes (an atom in Erlang).
            pub const fn as_str(self) -> &'static str {
                match self { $(Proposal::$variant => $text,)* }
            }
        }
    };
}

proposals! {
    Simd => "simd",
    RelaxedSimd => "relaxed_simd",
    RelaxedSimdDeterministic => "relaxed_simd_deterministic",
    BulkMemory => "bulk_memory",
    MultiValue => "multi_value",
    MultiMemory => "multi_memory",
    Memory64 => "memory64",
    TailCall => "tail_call",
    WideArithmetic => "wide_arithmetic",
    CustomPageSizes => "custom_page_sizes",
    Threads => "threads",
    ReferenceTypes => "reference_types",
    FunctionReferences => "function_references",
    Gc => "gc",
    Exceptions => "exceptions",
}

impl Proposal {
    /// True for what Wasmtime has on by default.
    pub const fn is_default(self) -> bool {
        use Proposal::{CustomPageSizes, RelaxedSimdDeterministic, WideArithmetic};
        !matches!(self, RelaxedSimdDeterministic | WideArithmetic | CustomPageSizes)
    }
}

/// The pool that linear memories and instances are taken from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// Live instances, at most.
    pub instances: u32,
    /// Size of one memory in bytes, at most; a multiple of 64 KiB.
    pub max_memory: u64,
    /// Bytes of a memory that a reset restores in place; written pages beyond are given back to the OS.
    pub keep_resident: u64,
    /// Live core instances, at most.
    pub core_instances: u32,
    /// Live tables, at most.
    pub tables: u32,
    /// Live linear memories (slots), at most.
    pub memories: u32,
    /// Compare the whole memory with its image after each reset.
    pub verify: bool,
}

/// Where instances and memories come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Allocator {
    OnDemand,
    Pooling(PoolOptions),
}

/// One option set is one engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CompileOptions {
    /// Count fuel.
    pub fuel: bool,
    pub opt_level: OptLevel,
    /// Proposals that differ from Wasmtime's defaults, sorted.
    pub proposals: Vec<(Proposal, bool)>,
    pub allocator: Allocator,
}

impl CompileOptions {
    /// Modules may have shared memories: where `threads` is turned on by name, though instructions of
    /// the proposal are on by default.
    pub fn shares_memories(&self) -> bool {
        self.proposals.contains(&(Proposal::Threads, true))
    }

    /// Whether a proposal is on.
    pub fn has(&self, proposal: Proposal) -> bool {
        is_on(&self.proposals, proposal)
    }
}

/// Whether `chosen`, and Wasmtime where that is silent, turns a proposal on.
pub(crate) fn is_on(chosen: &[(Proposal, bool)], proposal: Proposal) -> bool {
    let named = chosen.iter().find(|(name, _)| *name == proposal);
    named.map_or(proposal.is_default(), |(_, enable)| *enable)
}

/// How much of an artifact is checked before it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Footer, lengths and image table: the file is trusted like a shared library.
    Metadata,
    /// The checksum of every byte too.
    Full,
}

/// Limits of one instance; `None` is unlimited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of each memory.
    pub memory: Option<u64>,
    /// Bytes of all memories together.
    pub total_memory: Option<u64>,
    pub tables: Option<u64>,
    pub table_elements: Option<u64>,
    pub instances: Option<u64>,
}

/// What one instance gets.
#[derive(Clone, Debug)]
pub struct InstanceOptions {
    /// Names of the imports that the host serves.
    pub imports: Vec<(String, String)>,
    pub wasi: Option<WasiOptions>,
    pub limits: Limits,
    /// How long one host call may take; `None` is for ever.
    pub host_timeout: Option<Duration>,
    pub runner: Runner,
    /// Bytes that the inbox holds.
    pub inbox_limit: u64,
}

/// Who polls a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runner {
    /// An OS thread.
    Thread,
    /// Whoever asks, in slices; the clients take turns.
    Scheduler,
}

/// What one call gets.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// Deadline of the whole call, host calls included; `None` is none.
    pub timeout: Option<Duration>,
    /// Fuel of this call, for a module compiled with `fuel`.
    pub fuel: Option<u64>,
}

/// A preopened directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dir {
    /// The path the guest sees.
    pub guest: String,
    pub host: PathBuf,
    /// False refuses every mutation.
    pub write: bool,
}

/// What the guest reads as standard input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stdin {
    None,
    Inherit,
    /// The instance's inbox.
    Stream,
    File(PathBuf),
    /// Shared by all instances.
    Binary(Arc<[u8]>),
}

/// Where the guest's standard output or error goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    None,
    Inherit,
    /// Kept for `read_output`, up to `output_limit`.
    Capture,
    /// The instance's outlet, piece by piece.
    Stream,
    File(PathBuf),
}

/// The clocks a guest may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clocks {
    All,
    /// The host's monotonic clock, not zeroed at instantiation; every other id answers errno 76.
    Monotonic,
}

/// The WASI environment of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WasiOptions {
    pub args: Vec<String>,
    /// Names and values.
    pub env: Vec<(String, String)>,
    pub dirs: Vec<Dir>,
    pub stdin: Stdin,
    pub stdout: Output,
    pub stderr: Output,
    /// Bytes kept of each captured stream.
    pub output_limit: u64,
    pub clocks: Clocks,
}
