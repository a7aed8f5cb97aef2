//! From the pool to the store: what an instance took, offered to the creator of memories.
//! Rule: an offer is open on one thread, for the duration of one closure.

use super::held::Held;
use super::pool::{Live, Pool};
use crate::{Class, Error, Kind, Result};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static OFFERS: RefCell<Option<std::vec::IntoIter<Offer>>> = const { RefCell::new(None) };
}

/// What one instance took from a pool. Dropping it gives everything back.
#[derive(Debug)]
pub struct Lease {
    offers: Vec<Offer>,
    permit: Permit,
}

/// The memories of one module, to be offered once: where several modules share a store.
#[derive(Debug)]
pub struct Share(Vec<Offer>);

/// The counts of one live instance; dropping it gives them back.
#[derive(Debug)]
pub struct Permit {
    live: Live,
    unclaimed: usize,
    pool: Arc<Pool>,
}

/// One defined memory of the module, in order.
#[derive(Debug)]
pub(super) enum Offer {
    Slot(Held),
    /// A memory that cannot live in a slot may grow to `limit` bytes.
    Plain {
        limit: usize,
    },
}

impl Offer {
    pub(super) fn prepare(&mut self) -> Result<()> {
        let Offer::Slot(held) = self else { return Ok(()) };
        held.prepare().map_err(|error| {
            let text = format!("the system refused the mapping of a memory: {error}");
            Error::new(Class::Instantiate, Kind::OutOfMemory, text)
        })
    }
}

impl Lease {
    pub(super) fn new(offers: Vec<Offer>, permit: Permit) -> Self {
        Lease { offers, permit }
    }

    /// Runs `f` with the memories offered to the store that asks for them on this thread.
    ///
    /// `f` instantiates the module, and must ask for all its memories before it returns: an
    /// instance takes them before anything of it runs, so one poll of an asynchronous instantiation
    /// does, unless a limiter waits. Afterwards `Permit::unclaimed` tells; an instance that came
    /// about with memories unclaimed lacks its initial content and must not be used.
    pub fn offer<R>(self, f: impl FnOnce() -> R) -> (R, Permit) {
        let Lease { offers, mut permit } = self;
        let (result, unclaimed) = Share(offers).offer(f);
        permit.unclaimed = unclaimed;
        (result, permit)
    }

    /// The lease of several modules, taken apart: each gets as many memories as `counts` says, in
    /// order.
    pub fn split(self, counts: impl Iterator<Item = usize>) -> (Vec<Share>, Permit) {
        let Lease { offers, permit } = self;
        let mut offers = offers.into_iter();
        (counts.map(|count| Share(offers.by_ref().take(count).collect())).collect(), permit)
    }
}

impl Share {
    /// As [`Lease::offer`], for one module; answers the memories that no store took.
    pub fn offer<R>(self, f: impl FnOnce() -> R) -> (R, usize) {
        let scope = Scope::open(self.0);
        let result = f();
        (result, scope.close())
    }
}

impl Permit {
    pub(super) fn new(pool: Arc<Pool>, live: Live) -> Self {
        Permit { live, unclaimed: 0, pool }
    }

    /// Memories that no store took while they were offered; they are back in the pool.
    pub fn unclaimed(&self) -> usize {
        self.unclaimed
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.release(&self.live);
    }
}

/// The next offer open on this thread.
pub(super) fn next_offer() -> Option<Offer> {
    OFFERS.try_with(|offers| offers.borrow_mut().as_mut()?.next()).ok().flatten()
}

/// Puts back what was open before, also when the closure panics.
struct Scope {
    outer: Option<std::vec::IntoIter<Offer>>,
    open: bool,
}

impl Scope {
    fn open(offers: Vec<Offer>) -> Self {
        Scope { outer: OFFERS.replace(Some(offers.into_iter())), open: true }
    }

    fn close(mut self) -> usize {
        self.restore().map_or(0, |left| left.len())
    }

    fn restore(&mut self) -> Option<std::vec::IntoIter<Offer>> {
        self.open = false;
        OFFERS.replace(self.outer.take())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.open {
            drop(self.restore());
        }
    }
}
