//! An inbox read as standard input: its messages are one stream of bytes, its close the end of file.
//! A byte leaves the inbox in the poll that writes it into the guest, so that a stopped read loses
//! none.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use wasmtime_wasi::cli::{IsTerminal, StdinStream};
use wasmtime_wasi::p2::{InputStream, Pollable, StreamError, StreamResult};

use super::Inbox;

/// Bytes that one read takes, at most: some microseconds of work.
const MOST: usize = 64 << 10;

/// The standard input of an instance.
pub struct StdinOf(pub(crate) Arc<Inbox>);

impl IsTerminal for StdinOf {
    /// Nobody types: a guest must neither prompt nor edit lines.
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for StdinOf {
    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(Reader(self.0.clone()))
    }

    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(Reader(self.0.clone()))
    }
}

/// One end; all of an instance share their progress.
struct Reader(Arc<Inbox>);

#[async_trait::async_trait]
impl Pollable for Reader {
    async fn ready(&mut self) {
        self.0.bytes().await;
    }
}

#[async_trait::async_trait]
impl InputStream for Reader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.0.take(size.min(MOST)).map(Bytes::from).ok_or(StreamError::Closed)
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.0.poll_bytes(cx));
        // At the end nothing is put, which is how it is told.
        let bytes = self.0.take(into.remaining().min(MOST));
        bytes.into_iter().for_each(|bytes| into.put_slice(&bytes));
        Poll::Ready(Ok(()))
    }
}
