//! What one instance is sent: a bounded queue that any thread fills and the guest drains.
//! Its bytes are the limit; the guest waits for them without a thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::queue::{Queue, Segment, weight};
use crate::error::{Class, Error, Kind, Result};
use crate::guest::destroyed;

/// Bytes of one message, at most: `erlang.recv` of 32 bits tells a length as `-2 - Length`.
pub const MAX_MESSAGE: usize = i32::MAX as usize - 1;

/// Messages from this size on are copied before the lock is taken.
const LARGE: usize = 16 << 10;

/// The inbox of one instance.
pub struct Inbox {
    limit: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: Queue,
    end: End,
    /// Of whoever polls the guest, while it waits.
    waker: Option<Waker>,
}

/// What becomes of the inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// Nothing more comes; what is there can be read.
    Closed,
    /// The instance is gone.
    Destroyed,
}

impl Inbox {
    /// An inbox that holds `limit` bytes at most.
    pub fn new(limit: u64) -> Self {
        Inbox { limit, state: Mutex::default() }
    }

    /// Adds a message, whole or not at all. One without bytes counts as one byte.
    ///
    /// # Errors
    /// Class `stream`: `inbox_full`, `closed`; class `call`: `destroyed`.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        if message.len() < LARGE {
            return self.add(message.len(), |queue| queue.push(message));
        }
        self.must_take(&self.state.lock(), message.len())?;
        let segment = Segment::of(message);
        self.add(message.len(), |queue| queue.push_segment(segment))
    }

    fn add(&self, len: usize, push: impl FnOnce(&mut Queue)) -> Result<()> {
        let mut state = self.state.lock();
        self.must_take(&state, len)?;
        push(&mut state.queue);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn must_take(&self, state: &State, len: usize) -> Result<()> {
        match state.end {
            End::Open => {}
            End::Closed => return Err(closed()),
            End::Destroyed => return Err(destroyed()),
        }
        let limit = self.limit;
        if weight(len) > limit {
            return Err(full(format!(
                "{} can never be taken: inbox_limit is {limit}",
                describe(len)
            )));
        }
        if len > MAX_MESSAGE {
            return Err(full(format!(
                "a message of {len} bytes can never be taken: the largest has {MAX_MESSAGE}"
            )));
        }
        let held = state.queue.weight();
        if held + weight(len) > limit {
            return Err(full(format!(
                "the inbox holds {held} of {limit} bytes: {} does not fit until the guest reads",
                describe(len)
            )));
        }
        Ok(())
    }

    /// Nothing more is taken; the guest reads what is there, and then the end.
    ///
    /// # Errors
    /// Class `call`: `destroyed`.
    pub fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.end == End::Destroyed {
            return Err(destroyed());
        }
        state.end = End::Closed;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The instance is gone: frees what is left.
    pub fn destroy(&self) {
        self.destroy_within(u64::MAX);
    }

    /// As [`Inbox::destroy`]; false, and nothing is freed, when more than `bytes` are there.
    pub fn destroy_within(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        state.end = End::Destroyed;
        if state.queue.weight() > bytes {
            return false;
        }
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        drop(queue);
        true
    }

    /// Bytes that wait to be read.
    pub fn held(&self) -> u64 {
        self.state.lock().queue.weight()
    }

    /// Length of the first message, `None` without one; waits for ever in a destroyed instance, which
    /// is about to be stopped.
    pub(super) async fn front(&self) -> Option<usize> {
        let (front, end) = {
            let state = self.state.lock();
            (state.queue.front().map(<[u8]>::len), state.end)
        };
        match end {
            End::Open | End::Closed => front,
            End::Destroyed => std::future::pending().await,
        }
    }

    /// Copies from the first message at `offset`; false when it is not there any more.
    pub(super) fn copy(&self, offset: usize, into: &mut [u8]) -> bool {
        let state = self.state.lock();
        let from = state.queue.front().and_then(|front| front.get(offset..offset + into.len()));
        from.map(|from| into.copy_from_slice(from)).is_some()
    }

    /// The first message was read.
    pub(super) fn pop(&self) {
        self.state.lock().queue.pop();
    }

    /// Up to `most` bytes of a stream: `None` at its end, none while there are none.
    pub(super) fn take(&self, most: usize) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        state.queue.skip_empty();
        if state.queue.front().is_none() && state.end == End::Closed {
            return None;
        }
        Some(state.queue.take(most))
    }

    /// Waits until there is a message, or no more will come.
    pub(super) fn message(&self) -> Arrival<'_> {
        Arrival { inbox: self, skip_empty: false }
    }

    /// Waits until there is a byte, or no more will come.
    pub(super) fn bytes(&self) -> Arrival<'_> {
        Arrival { inbox: self, skip_empty: true }
    }

    /// As `bytes`, for who is polled: its waker stays until something comes.
    pub(super) fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll(cx, true)
    }

    fn poll(&self, cx: &mut Context<'_>, skip_empty: bool) -> Poll<()> {
        let mut state = self.state.lock();
        if skip_empty {
            state.queue.skip_empty();
        }
        // A destroyed instance must not take that for the end of its input: it is about to be stopped.
        if state.queue.front().is_some() || state.end == End::Closed {
            return Poll::Ready(());
        }
        let old = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(old);
        Poll::Pending
    }
}

/// Waits for what is sent. A guest waits in one place only, so that there is one waker.
pub(super) struct Arrival<'a> {
    inbox: &'a Inbox,
    skip_empty: bool,
}

impl Future for Arrival<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.inbox.poll(cx, self.skip_empty)
    }
}

impl Drop for Arrival<'_> {
    /// Who waits no more is not to be woken; and the waker may hold the guest.
    fn drop(&mut self) {
        let waker = self.inbox.state.lock().waker.take();
        drop(waker);
    }
}

fn closed() -> Error {
    Error::new(Class::Stream, Kind::Closed, "the inbox was closed")
}

fn describe(len: usize) -> String {
    match len {
        0 => "an empty message, which counts as one byte,".into(),
        _ => format!("a message of {len} bytes"),
    }
}

fn full(message: String) -> Error {
    Error::new(Class::Stream, Kind::InboxFull, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(inbox: &Inbox) -> Option<usize> {
        inbox.state.lock().queue.front().map(<[u8]>::len)
    }

    fn kind(result: Result<()>) -> Kind {
        result.unwrap_err().kind
    }

    /// Exactly the limit fits, in one message or several; what does not fit changes nothing.
    #[test]
    fn the_limit_counts_bytes() {
        let inbox = Inbox::new(10);
        inbox.send(b"12345678").unwrap();
        assert_eq!(kind(inbox.send(b"abc")), Kind::InboxFull);
        inbox.send(b"ab").unwrap();
        assert_eq!(kind(inbox.send(b"")), Kind::InboxFull);
        assert_eq!(inbox.held(), 10);
        inbox.pop();
        assert_eq!(front(&inbox), Some(2));
        inbox.send(b"87654321").unwrap();
        let refused = Inbox::new(10).send(&[0; 11]).unwrap_err();
        assert_eq!((refused.class, refused.kind), (Class::Stream, Kind::InboxFull));
        assert!(refused.message.contains("never"));
        Inbox::new(10).send(&[0; 10]).unwrap();
    }

    /// Large messages, which are copied before the lock is taken, keep the same rules.
    #[test]
    fn large_messages_count_too() {
        let inbox = Inbox::new(2 * LARGE as u64);
        inbox.send(&[1; LARGE]).unwrap();
        inbox.send(&[2; LARGE]).unwrap();
        assert_eq!(kind(inbox.send(&[3; LARGE])), Kind::InboxFull);
        let mut copy = vec![0; LARGE - 5];
        assert!(inbox.copy(5, &mut copy) && copy == [1; LARGE - 5]);
        assert!(!inbox.copy(6, &mut copy));
        inbox.pop();
        assert_eq!(inbox.take(2 * LARGE), Some(vec![2; LARGE]));
    }

    /// A closed inbox takes nothing, and gives what it has; one of a destroyed instance neither.
    #[test]
    fn ends_are_told_apart() {
        let inbox = Inbox::new(10);
        inbox.send(b"last").unwrap();
        inbox.close().unwrap();
        inbox.close().unwrap();
        assert_eq!(kind(inbox.send(b"more")), Kind::Closed);
        assert_eq!(inbox.take(100), Some(b"last".to_vec()));
        assert_eq!(inbox.take(100), None);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(inbox.poll_bytes(&mut cx).is_ready());
        inbox.destroy();
        assert!(inbox.poll_bytes(&mut cx).is_pending());
        assert_eq!(kind(inbox.send(b"more")), Kind::Destroyed);
        assert_eq!(kind(inbox.close()), Kind::Destroyed);
    }

    /// Empty messages are messages for the channel, and nothing for a stream.
    #[test]
    fn empty_messages() {
        let inbox = Inbox::new(10);
        inbox.send(b"").unwrap();
        assert_eq!(front(&inbox), Some(0));
        assert_eq!(inbox.take(100), Some(Vec::new()));
        assert_eq!(front(&inbox), None);
        assert_eq!(inbox.held(), 0);
    }
}
