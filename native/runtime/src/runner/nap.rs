//! The sleep of somebody who is woken by a message. Rule: who said that it sleeps gets one message,
//! and only one; what happens before is noticed without any.

use super::sync::{AtomicU8, Mutex, Ordering};

/// The state of one sleeper; `M` is its message.
pub struct Nap<M> {
    state: AtomicU8,
    message: Mutex<Option<M>>,
}

/// At work, or about to look.
const AWAKE: u8 = 0;
/// As `AWAKE`, and something happened since.
const WOKEN: u8 = 1;
/// Waits for its message.
const ASLEEP: u8 = 2;

impl<M> Default for Nap<M> {
    fn default() -> Self {
        Nap { state: AtomicU8::new(AWAKE), message: Mutex::new(None) }
    }
}

impl<M> Nap<M> {
    /// The sleeper looks: what happens from here on is noticed. A swap, for what was done before the
    /// last `notify` must be seen by what the sleeper reads from here on; without one since the last
    /// look there is nothing to see.
    pub fn look(&self) {
        if self.state.load(Ordering::Acquire) != AWAKE {
            self.state.swap(AWAKE, Ordering::AcqRel);
        }
    }

    /// True when something happened since the sleeper looked.
    pub fn is_woken(&self) -> bool {
        self.state.load(Ordering::Acquire) == WOKEN
    }

    /// The sleeper is about to wait for `message`: true when it will get it, false when something
    /// happened already.
    pub fn sleep(&self, message: M) -> bool {
        *self.message.lock() = Some(message);
        let state = &self.state;
        state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Something happened: the sleeper looks before it sleeps, or is to be sent its message.
    pub fn notify(&self) -> Option<M> {
        if self.state.swap(WOKEN, Ordering::AcqRel) != ASLEEP {
            return None;
        }
        self.message.lock().take()
    }
}
