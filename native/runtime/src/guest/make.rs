//! Makes the instance of a module without a start section, where nothing of the guest runs.
//! Rule: no job and no queue; the lock on the guest's body keeps everybody else out meanwhile.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::control::destroyed;
use super::execute::instantiate;
use super::job::{Outcome, panicked};
use super::poll::{Body, Guest, unmapped};
use super::store::StoreCell;
use crate::error::{Error, Result};
use crate::inject::point;

impl Guest {
    /// Makes the instance at once, on this thread: for modules without a start section. A guest
    /// that could not be made is gone.
    ///
    /// # Errors
    /// Traps of segments, limits, and host errors.
    pub fn instantiate(&self) -> Result<()> {
        let mut body = self.body.lock();
        let Body::Idle(cell) = &mut *body else { return Err(destroyed()) };
        if cell.is_made() {
            return Err(Error::internal("an instance is made once"));
        }
        let made = catch_unwind(AssertUnwindSafe(|| {
            point("instantiate");
            self.make(cell)
        }));
        let outcome = made.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        if outcome.is_err() || !cell.is_made() {
            let old = std::mem::replace(&mut *body, Body::Gone);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(old)));
            self.control.doom();
        }
        outcome.map(drop)
    }

    fn make(&self, cell: &mut StoreCell) -> Outcome {
        let Some(lease) = cell.lease.take() else {
            return at_once(instantiate(cell, &self.linked));
        };
        let (outcome, permit) = lease.offer(|| at_once(instantiate(cell, &self.linked)));
        let unclaimed = permit.unclaimed();
        cell.permit = Some(permit);
        outcome.and_then(|made| if unclaimed > 0 { Err(unmapped()) } else { Ok(made) })
    }
}

/// The outcome of work that waits for nothing: a pending poll of it is an epoch's yield.
fn at_once<R>(work: impl Future<Output = R>) -> R {
    let (mut work, mut cx) = (pin!(work), Context::from_waker(Waker::noop()));
    loop {
        if let Poll::Ready(result) = work.as_mut().poll(&mut cx) {
            return result;
        }
    }
}
