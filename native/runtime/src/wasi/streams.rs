//! Output that needs no waiting: discarded, captured, streamed, or written to a file.
//! A large write yields now and then, so that its call can still be sliced and cancelled.

use super::inherited::Inherited;
use crate::stream::{Outlet, Stream};
use bytes::Bytes;
use parking_lot::Mutex;
use std::fs::File;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// Bytes that one write may hand over; the least that keeps system calls rare.
const PERMIT: usize = 64 << 10;
/// Bytes written before the guest yields to its runner: some tens of microseconds of work.
const YIELD_AFTER: usize = 128 << 10;

/// What one instance wrote to its captured streams. Clones share it, so that it can be taken while
/// the guest runs.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    pub(super) stdout: Option<Arc<Capture>>,
    pub(super) stderr: Option<Arc<Capture>>,
}

/// What [`Captured::take`] answers; a stream that is not captured is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Bytes that were beyond `output_limit` since the last take: of stdout, of stderr.
    pub dropped: (u64, u64),
}

impl Captured {
    /// Bytes that [`Captured::take`] would give.
    pub fn held(&self) -> usize {
        let held = |capture: &Arc<Capture>| capture.kept.lock().bytes.len();
        self.stdout.iter().chain(&self.stderr).map(held).sum()
    }

    /// Takes what was captured since the last take; the limit counts anew from here.
    pub fn take(&self) -> CapturedOutput {
        let (stdout, dropped_stdout) = take(&self.stdout);
        let (stderr, dropped_stderr) = take(&self.stderr);
        CapturedOutput { stdout, stderr, dropped: (dropped_stdout, dropped_stderr) }
    }
}

fn take(capture: &Option<Arc<Capture>>) -> (Vec<u8>, u64) {
    capture.as_ref().map_or((Vec::new(), 0), |capture| {
        let mut kept = capture.kept.lock();
        (std::mem::take(&mut kept.bytes), std::mem::take(&mut kept.dropped))
    })
}

/// The bytes of one stream up to a limit, and a count of the others.
#[derive(Debug)]
pub struct Capture {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    dropped: u64,
}

impl Capture {
    pub(super) fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Capture { limit, kept: Mutex::default() }
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock();
        let room = self.limit.saturating_sub(kept.bytes.len()).min(bytes.len());
        kept.bytes.extend_from_slice(&bytes[..room]);
        kept.dropped = kept.dropped.saturating_add((bytes.len() - room) as u64);
    }
}

/// Where a guest's output goes. Clones share it.
#[derive(Clone)]
pub enum Target {
    /// Accepted and thrown away.
    Discard,
    /// Kept for [`Captured::take`].
    Capture(Arc<Capture>),
    /// A file.
    File(Arc<File>),
    /// The stdout or stderr of this OS process.
    Inherit(Inherited),
    /// Handed over piece by piece.
    Stream(Arc<dyn Outlet>, Stream),
}

impl Target {
    pub(super) fn capture(&self) -> Option<Arc<Capture>> {
        match self {
            Target::Capture(capture) => Some(capture.clone()),
            _ => None,
        }
    }
}

impl IsTerminal for Target {
    fn is_terminal(&self) -> bool {
        match self {
            Target::Inherit(inherited) => inherited.is_terminal(),
            // A guest's C library then writes line by line.
            Target::Stream(..) => true,
            Target::Discard | Target::Capture(_) | Target::File(_) => false,
        }
    }
}

impl StdoutStream for Target {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        match self {
            Target::Discard => Box::new(SinkStream::new(Sink::Discard)),
            Target::Capture(capture) => Box::new(SinkStream::new(Sink::Capture(capture.clone()))),
            Target::File(file) => Box::new(SinkStream::new(Sink::File(file.clone()))),
            Target::Inherit(inherited) => inherited.p2_stream(),
            Target::Stream(outlet, stream) => {
                Box::new(SinkStream::new(Sink::Stream(outlet.clone(), *stream)))
            }
        }
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        match self {
            Target::Discard => Box::new(SinkStream::new(Sink::Discard)),
            Target::Capture(capture) => Box::new(SinkStream::new(Sink::Capture(capture.clone()))),
            Target::File(file) => Box::new(SinkStream::new(Sink::File(file.clone()))),
            Target::Inherit(inherited) => inherited.async_stream(),
            Target::Stream(outlet, stream) => {
                Box::new(SinkStream::new(Sink::Stream(outlet.clone(), *stream)))
            }
        }
    }
}

/// Output that never waits.
enum Sink {
    Discard,
    Capture(Arc<Capture>),
    File(Arc<File>),
    Stream(Arc<dyn Outlet>, Stream),
}

impl Sink {
    fn put(&self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Sink::Discard => Ok(()),
            Sink::Capture(capture) => {
                capture.push(bytes);
                Ok(())
            }
            Sink::File(file) => (&**file).write_all(bytes),
            Sink::Stream(outlet, stream) => {
                outlet.put(*stream, bytes);
                Ok(())
            }
        }
    }
}

struct SinkStream {
    sink: Sink,
    since_yield: usize,
}

impl SinkStream {
    fn new(sink: Sink) -> Self {
        SinkStream { sink, since_yield: 0 }
    }
}

#[async_trait::async_trait]
impl Pollable for SinkStream {
    async fn ready(&mut self) {
        if self.since_yield >= YIELD_AFTER {
            self.since_yield = 0;
            yield_once().await;
        }
    }
}

impl OutputStream for SinkStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.since_yield += bytes.len();
        self.sink.put(&bytes).map_err(|error| StreamError::LastOperationFailed(error.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

impl AsyncWrite for SinkStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(self.sink.put(bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Gives the runner one chance to stop or to slice the guest.
pub(crate) async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
