//! Streams: bytes to a guest that come from outside, and bytes of a guest that leave it at once.
//!
//! - [`Inbox`]: the messages that one instance is sent, bounded in bytes.
//! - [`Outlet`]: where its output goes; the core knows no process, and hands over bytes.
//! - [`Ends`]: both, as a store's data keeps them.
//! - `builtin`: the imports `erlang.send` and `erlang.recv`.
//! - `stdin`: an inbox read as standard input.

mod builtin;
mod inbox;
mod queue;
mod stdin;

use std::sync::Arc;

pub(crate) use builtin::{define, sends};
pub use inbox::{Inbox, MAX_MESSAGE};
pub use stdin::StdinOf;

/// What a guest writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
    /// Messages of `erlang.send`, each whole.
    Channel,
}

/// Takes what a guest streams out, in the order of the calls. Nothing here waits: whoever reads
/// slower than the guest writes keeps what is left to read.
pub trait Outlet: Send + Sync {
    /// A piece of stdout or stderr, or a whole message.
    fn put(&self, stream: Stream, bytes: &[u8]);

    /// A message of `len` bytes that is written in pieces, so that the guest can be stopped or
    /// sliced meanwhile.
    fn draft(&self, len: usize) -> Box<dyn Draft + '_>;
}

/// A message that is being written; dropped before its end, it was never there.
pub trait Draft: Send {
    /// The next bytes. All together they are as many as the draft was made for.
    fn write(&mut self, bytes: &[u8]);
    fn send(self: Box<Self>);
}

/// The ends of one instance's streams.
#[derive(Clone)]
pub struct Ends {
    pub inbox: Arc<Inbox>,
    /// Without one, output is thrown away.
    pub outlet: Option<Arc<dyn Outlet>>,
}

impl Ends {
    /// An inbox of `limit` bytes, and this outlet.
    pub fn new(limit: u64, outlet: Option<Arc<dyn Outlet>>) -> Self {
        Ends { inbox: Arc::new(Inbox::new(limit)), outlet }
    }

    /// An inbox that takes nothing, and no outlet.
    pub fn none() -> Self {
        Ends::new(0, None)
    }
}
