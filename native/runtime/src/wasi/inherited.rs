//! The stdout and stderr of this OS process, as the streams of a guest.
//! A pipe that nobody reads must not hold up a polling thread, so that one thread for each does the
//! writing; a guest awaits its turn, and takes its bytes back when it is cancelled or destroyed.

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;
use tokio::sync::oneshot;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// Bytes that one stream may have in the queue.
const PERMIT: usize = 16 << 10;

/// Which stream of the process.
#[derive(Clone, Copy)]
pub enum Inherited {
    Stdout,
    Stderr,
}

static STDOUT: Queue = Queue::new(libc::STDOUT_FILENO);
static STDERR: Queue = Queue::new(libc::STDERR_FILENO);

impl Inherited {
    fn stream(self) -> OutputQueueEnd {
        let queue = match self {
            Inherited::Stdout => &STDOUT,
            Inherited::Stderr => &STDERR,
        };
        OutputQueueEnd { queue, state: State::Idle }
    }
}

impl IsTerminal for Inherited {
    fn is_terminal(&self) -> bool {
        match self {
            Inherited::Stdout => io::IsTerminal::is_terminal(&io::stdout()),
            Inherited::Stderr => io::IsTerminal::is_terminal(&io::stderr()),
        }
    }
}

impl StdoutStream for Inherited {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.stream())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.stream())
    }
}

/// Bytes on their way out, and who waits for them.
struct Job {
    bytes: Bytes,
    done: Mutex<Option<oneshot::Sender<io::Result<()>>>>,
}

struct Queue {
    fd: RawFd,
    jobs: Mutex<Jobs>,
    added: Condvar,
}

struct Jobs {
    waiting: VecDeque<Arc<Job>>,
    started: bool,
}

impl Queue {
    const fn new(fd: RawFd) -> Self {
        let jobs = Jobs { waiting: VecDeque::new(), started: false };
        Queue { fd, jobs: Mutex::new(jobs), added: Condvar::new() }
    }

    /// Queues bytes; the thread is started by the first ones.
    fn push(
        &'static self,
        bytes: Bytes,
    ) -> io::Result<(Arc<Job>, oneshot::Receiver<io::Result<()>>)> {
        let (sender, receiver) = oneshot::channel();
        let job = Arc::new(Job { bytes, done: Mutex::new(Some(sender)) });
        let mut jobs = self.jobs.lock();
        if !jobs.started {
            let thread = std::thread::Builder::new().name("wasmtime-output".into());
            thread.spawn(|| self.write_jobs())?;
            jobs.started = true;
        }
        jobs.waiting.push_back(job.clone());
        self.added.notify_one();
        Ok((job, receiver))
    }

    fn remove(&self, job: &Arc<Job>) {
        self.jobs.lock().waiting.retain(|waiting| !Arc::ptr_eq(waiting, job));
    }

    fn write_jobs(&self) {
        loop {
            let job = self.next();
            let result = write_all(self.fd, &job.bytes);
            if let Some(done) = job.done.lock().take() {
                // Nobody waits any more when the guest is gone.
                let _ = done.send(result);
            }
        }
    }

    fn next(&self) -> Arc<Job> {
        let mut jobs = self.jobs.lock();
        loop {
            match jobs.waiting.pop_front() {
                Some(job) => return job,
                None => self.added.wait(&mut jobs),
            }
        }
    }
}

/// Writes to a descriptor that may be in non-blocking mode, as the terminal of a VM is.
fn write_all(fd: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are those of a live slice.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written) => bytes = &bytes[written..],
            Err(_) => wait_or_fail(fd, io::Error::last_os_error())?,
        }
    }
    Ok(())
}

fn wait_or_fail(fd: RawFd, error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => {
            let mut wanted = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one valid pollfd. Its failures show in the write that follows.
            unsafe { libc::poll(&mut wanted, 1, -1) };
            Ok(())
        }
        _ => Err(error),
    }
}

/// One guest's end. At most one job of it is in the queue.
struct OutputQueueEnd {
    queue: &'static Queue,
    state: State,
}

enum State {
    Idle,
    Writing(Arc<Job>, oneshot::Receiver<io::Result<()>>),
    Failed(io::Error),
}

impl OutputQueueEnd {
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Writing(_, receiver) = &mut self.state {
            // The sender is dropped unused only if the thread died.
            let result = ready!(Pin::new(receiver).poll(cx))
                .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
            self.state = result.map_or_else(State::Failed, |()| State::Idle);
        }
        Poll::Ready(())
    }

    fn failure(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Failed(error) => Err(error),
            state => {
                self.state = state;
                Ok(())
            }
        }
    }

    fn start(&mut self, bytes: Bytes) -> io::Result<()> {
        let (job, receiver) = self.queue.push(bytes)?;
        self.state = State::Writing(job, receiver);
        Ok(())
    }
}

impl Drop for OutputQueueEnd {
    fn drop(&mut self) {
        if let State::Writing(job, _) = &self.state {
            self.queue.remove(job);
        }
    }
}

#[async_trait::async_trait]
impl Pollable for OutputQueueEnd {
    async fn ready(&mut self) {
        std::future::poll_fn(|cx| self.poll_idle(cx)).await
    }
}

impl OutputStream for OutputQueueEnd {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if !matches!(self.state, State::Idle) {
            return Err(StreamError::trap("a write began before the one before it had ended"));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.start(bytes).map_err(stream_error)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.failure().map_err(stream_error)?;
        Ok(if matches!(self.state, State::Idle) { PERMIT } else { 0 })
    }
}

impl AsyncWrite for OutputQueueEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_idle(cx));
        self.failure()?;
        let size = bytes.len().min(PERMIT);
        self.start(Bytes::copy_from_slice(&bytes[..size]))?;
        Poll::Ready(Ok(size))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_idle(cx));
        Poll::Ready(self.failure())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

fn stream_error(error: io::Error) -> StreamError {
    StreamError::LastOperationFailed(error.into())
}
