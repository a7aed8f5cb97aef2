//! Panics on demand, for the tests of what catches them: feature `inject-panics`, off by default.
//! Rule: without the feature a point is nothing at all.

/// Every point, in the order in which a request comes by.
pub const POINTS: &[&str] = &[
    "compile",
    "options",
    "decode",
    "instantiate",
    "thread",
    "step",
    "poll",
    "execute",
    "access",
    "tell",
    "encode_call",
    "answer",
    "encode",
    "park",
    "tick",
    "fire",
    "nag",
    "down",
    "expire",
    "resource",
    "background",
    "bury",
    "restorer",
    "restore",
    "store",
];

#[cfg(feature = "inject-panics")]
mod armed {
    use std::collections::HashMap;

    use parking_lot::Mutex;

    static ARMED: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);

    /// The next passes of `point` panic, as many as `times` says.
    pub fn arm(point: &str, times: u64) {
        ARMED.lock().get_or_insert_default().insert(point.to_owned(), times);
    }

    /// How many passes of `point` are still to panic.
    pub fn left(point: &str) -> u64 {
        ARMED.lock().as_ref().and_then(|armed| armed.get(point)).copied().unwrap_or_default()
    }

    pub(super) fn take(point: &str) -> bool {
        let mut armed = ARMED.lock();
        let left = armed.as_mut().and_then(|armed| armed.get_mut(point));
        left.filter(|left| **left > 0).map(|left| *left -= 1).is_some()
    }
}

#[cfg(feature = "inject-panics")]
pub use armed::{arm, left};

/// Panics if the point is armed. Not while another panic unwinds: a destructor that panics then ends
/// the process, by the rules of Rust.
#[inline(always)]
pub fn point(_name: &str) {
    #[cfg(feature = "inject-panics")]
    if !std::thread::panicking() && armed::take(_name) {
        panic!("injected at {_name}");
    }
}
