//! Threads that wait for work, and how they get it. Rule: work that was given is taken; a thread that
//! leaves is given none.

use std::time::Duration;

use super::sync::{Arc, Mutex, Thread, park_timeout};

/// Waiting threads, the last one on top: its caches are warmest.
pub(super) type Seats<T> = Mutex<Vec<Arc<Seat<T>>>>;

/// The place of one thread.
pub(super) struct Seat<T> {
    thread: Thread,
    next: Mutex<Option<T>>,
}

/// Gives work to a waiting thread; it comes back when none waits.
pub(super) fn give<T>(seats: &Seats<T>, work: T) -> Option<T> {
    let seat = seats.lock().pop();
    match seat {
        Some(seat) => {
            *seat.next.lock() = Some(work);
            seat.thread.unpark();
            None
        }
        None => Some(work),
    }
}

impl<T> Seat<T> {
    /// A place for `thread`, which alone waits in it.
    pub(super) fn new(thread: Thread) -> Arc<Self> {
        Arc::new(Seat { thread, next: Mutex::new(None) })
    }

    /// Waits for work as long as there is time left; `None` after that.
    pub(super) fn wait(
        seat: &Arc<Self>,
        seats: &Seats<T>,
        left: impl Fn() -> Duration,
    ) -> Option<T> {
        seats.lock().push(seat.clone());
        Self::go_on(seat, seats, left)
    }

    /// The wait itself, for a seat that is among the others, or was given work.
    pub(super) fn go_on(
        seat: &Arc<Self>,
        seats: &Seats<T>,
        left: impl Fn() -> Duration,
    ) -> Option<T> {
        loop {
            let left = left();
            if let Some(work) = seat.next.lock().take() {
                return Some(work);
            }
            if left.is_zero() && Self::leave(seat, seats) {
                return None;
            }
            park_timeout(left);
        }
    }

    /// False when work was given meanwhile, or is about to be.
    fn leave(seat: &Arc<Self>, seats: &Seats<T>) -> bool {
        let mut seats = seats.lock();
        let at = seats.iter().position(|other| Arc::ptr_eq(other, seat));
        at.map(|at| seats.remove(at)).is_some()
    }
}
