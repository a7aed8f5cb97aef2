//! A slot while somebody holds it, from the pool's hand until it is back there, restored.
//! Rule: however it is dropped, the slot reaches the pool clean, or not at all.

use super::image::{Image, MemoryPlan};
use super::pool::Pool;
use super::reset::{self, Area, Reset, Writes};
use super::slot::{Key, Slot};
use crate::counts::{Live, Object};
use crate::inject::point;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A slot taken from a pool for one memory.
#[derive(Debug)]
pub(super) struct Held {
    /// `None` until one is mapped.
    slot: Option<Slot>,
    min: usize,
    /// Bytes that are accessible.
    len: usize,
    stage: Stage,
    reset: Reset,
    /// False when the pool counts it as one that is being restored.
    is_live: bool,
    /// Before the pool: the last holder of an image makes the pool forget it.
    image: Arc<Image>,
    pool: Arc<Pool>,
    _live: Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It may hold anything.
    Taken,
    /// It holds the image, and nobody wrote to it.
    Ready,
    /// A store has it, or had it.
    Used,
}

impl Held {
    pub(super) fn new(pool: Arc<Pool>, slot: Option<Slot>, plan: &MemoryPlan) -> Self {
        let (min, image) = (plan.min_bytes as usize, plan.content());
        let (stage, reset) = (Stage::Taken, Reset::default());
        let _live = Live::new(Object::Slot);
        Held { slot, min, len: min, stage, reset, is_live: true, image, pool, _live }
    }

    /// Makes the slot hold the image.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        let slot = match &mut self.slot {
            Some(slot) => slot,
            none => none.insert(Slot::new()?),
        };
        if slot.key() != Some(Key::of(&self.image, self.min)) {
            self.image.used_by(&self.pool);
            slot.prepare(&self.image, self.min)?;
        }
        self.stage = Stage::Ready;
        Ok(())
    }

    /// Notes that a store gets the memory; `None` when it is not ready for this request.
    pub(super) fn hand_over(mut self, min: usize) -> Option<Self> {
        if self.stage != Stage::Ready || min != self.min {
            return None;
        }
        self.stage = Stage::Used;
        Some(self)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn capacity(&self) -> usize {
        self.pool.capacity()
    }

    /// True when the memory may leave the slot to grow.
    pub(super) fn may_outgrow(&self) -> bool {
        self.pool.may_outgrow()
    }

    /// Start of the memory; null before `prepare`.
    pub(super) fn base(&self) -> *mut u8 {
        self.slot.as_ref().map_or(std::ptr::null_mut(), Slot::base)
    }

    /// Makes the bytes up to `len` accessible.
    pub(super) fn grow(&mut self, len: usize) -> io::Result<()> {
        let Some(slot) = &mut self.slot else { return Err(io::ErrorKind::NotFound.into()) };
        if len < self.len || len > self.pool.capacity() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        slot.grow(self.len, len)?;
        self.len = len;
        Ok(())
    }

    /// Restores within `budget` bytes of work and gives the slot back; else answers itself, to be
    /// restored elsewhere.
    pub(super) fn settle_within(mut self, budget: &mut Option<usize>) -> Option<Self> {
        let looks = self.pool.verifies() && budget.is_some_and(|bytes| bytes < self.min);
        if self.stage == Stage::Used && (looks || matches!(self.restore(budget), Ok(false))) {
            return Some(self);
        }
        None
    }

    /// True when its pool can do without the slot for a while.
    pub(super) fn has_spare(&self) -> bool {
        self.pool.has_spare()
    }

    /// Gives its place in the pool back before it is restored.
    pub(super) fn leave_place(mut self) -> Self {
        self.pool.begin_restoring();
        self.is_live = false;
        self
    }

    /// Bytes that may have been written.
    pub(super) fn extent(&self) -> usize {
        self.slot.as_ref().map_or(0, Slot::extent)
    }

    fn area<'a>(&'a self, slot: &Slot) -> Area<'a> {
        let (base, extent) = (slot.base(), slot.extent());
        // What is live is restored by who used it.
        let writes = if self.is_live { Writes::All } else { Writes::Changed };
        Area { base, len: self.len, extent, image: &self.image, writes }
    }

    fn restore(&mut self, budget: &mut Option<usize>) -> io::Result<bool> {
        let Some(slot) = &self.slot else { return Ok(true) };
        point("restore");
        let mut reset = std::mem::take(&mut self.reset);
        let done = reset.advance(&self.area(slot), self.pool.policy(), budget);
        self.reset = reset;
        done
    }

    /// Restores all that is left; false when the slot must be mapped anew.
    fn restored(&mut self) -> bool {
        let done = self.restore(&mut None);
        self.pool.counters().reset(self.reset.restored);
        let Some(slot) = &self.slot else { return true };
        if self.pool.verifies() && done.is_ok() && !reset::is_pristine(&self.area(slot)) {
            self.pool.counters().verify_failure();
            return false;
        }
        done.and_then(|_| self.shrink()).is_ok()
    }

    /// Takes grown memory away again; what was kept of it is there for the next growth.
    fn shrink(&mut self) -> io::Result<()> {
        let Some(slot) = &mut self.slot else { return Ok(()) };
        slot.shrink(self.len, self.min)?;
        slot.trim(self.reset.top.max(self.min));
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let clean = match self.stage {
            Stage::Taken => false,
            Stage::Ready => true,
            // A slot of which nobody knows what it holds is unmapped.
            Stage::Used => catch_unwind(AssertUnwindSafe(|| self.restored())).unwrap_or(false),
        };
        match self.slot.take() {
            Some(slot) if clean => self.pool.put_back(slot, self.is_live),
            slot => self.pool.discard(slot, self.is_live),
        }
    }
}
