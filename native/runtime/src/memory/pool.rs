//! One engine's slots and its counts of live instances, memories and tables.
//! Rule: an instance gets all it needs at once or a plain answer at once; nothing waits here.

use super::held::Held;
use super::idle::Idle;
use super::image::MemoryPlan;
use super::info::{Counters, PoolInfo};
use super::lease::{Lease, Offer, Permit};
use super::pagemap::pagemap_scan_available;
use super::reset::Policy;
use super::restorer::SPARE;
use super::slot::{Arena, Key, Slot};
use super::{MEMORY_RESERVATION, limits::Limits};
use crate::options::PoolOptions;
use crate::{Class, Error, Kind, Result};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Idle slots that an engine without a pool keeps.
const ON_DEMAND_IDLE: usize = 8;

/// Bytes that a reset restores in place for an engine without a pool: with the slots above, at most
/// 32 MiB stay behind.
const ON_DEMAND_KEEP: usize = 4 << 20;

/// The slots of one engine.
#[derive(Debug)]
pub struct Pool {
    limits: Option<Limits>,
    policy: Policy,
    verify: bool,
    /// Bytes one slot can grow to.
    capacity: usize,
    state: Mutex<State>,
    counters: Counters,
    /// There are slots beside those of live memories.
    spare: bool,
    /// After the state: slots of an arena go before their arena.
    arena: Option<Arena>,
}

#[derive(Debug, Default)]
struct State {
    live: Live,
    /// Memories that are live no more, and whose slots are not back yet.
    restoring: u64,
    idle: Idle,
    /// Slots of the arena that were never used: those from this number on.
    fresh: u32,
    blank: Vec<Slot>,
}

/// What is in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Live {
    pub(super) instances: u64,
    pub(super) core_instances: u64,
    pub(super) memories: u64,
    pub(super) tables: u64,
}

impl Pool {
    /// Reserves `memories` slots of 4 GiB and a guard.
    ///
    /// # Errors
    /// `pool_too_large` when the system does not have that much address space.
    pub fn pooled(options: &PoolOptions) -> Result<Arc<Pool>> {
        Pool::with_scan(options, pagemap_scan_available())
    }

    /// As `pooled`, but drops all of a memory at each reset, as on a system that cannot tell which
    /// pages were written.
    ///
    /// # Errors
    /// As `pooled`.
    pub fn pooled_without_scan(options: &PoolOptions) -> Result<Arc<Pool>> {
        Pool::with_scan(options, false)
    }

    fn with_scan(options: &PoolOptions, scan: bool) -> Result<Arc<Pool>> {
        // Where addresses are scarce a pool does without spare slots.
        let with_spare = Arena::new(options.memories.saturating_add(SPARE)).ok();
        let spare = with_spare.is_some();
        let arena = match with_spare {
            Some(arena) => arena,
            None => Arena::new(options.memories).map_err(|e| too_large(options.memories, &e))?,
        };
        let keep = usize::try_from(options.keep_resident).unwrap_or(usize::MAX);
        Ok(Arc::new(Pool {
            limits: Some(Limits::of(options)),
            policy: Policy { keep, scan },
            verify: options.verify,
            capacity: options.max_memory.min(MEMORY_RESERVATION) as usize,
            state: Mutex::default(),
            counters: Counters::default(),
            spare,
            arena: Some(arena),
        }))
    }

    /// A pool without limits: slots are mapped when needed, and a few are kept when idle.
    pub fn on_demand() -> Arc<Pool> {
        Arc::new(Pool {
            limits: None,
            policy: Policy { keep: ON_DEMAND_KEEP, scan: pagemap_scan_available() },
            verify: false,
            capacity: MEMORY_RESERVATION as usize,
            state: Mutex::default(),
            counters: Counters::default(),
            spare: true,
            arena: None,
        })
    }

    /// What the pool did and holds.
    pub fn info(&self) -> PoolInfo {
        let state = self.state.lock();
        let (live, warm, restoring) = (state.live, state.idle.len() as u64, state.restoring);
        drop(state);
        let held = live.memories + warm + restoring;
        let total = self.limits.as_ref().map_or(held, |limits| limits.memories.into());
        self.counters.info(total, warm, restoring, &live)
    }

    /// Tells whether an instance with these memories and tables could ever live here.
    ///
    /// # Errors
    /// `memory_limit` when a memory begins larger than `max_memory`.
    pub fn check(&self, plans: &[MemoryPlan]) -> Result<()> {
        self.limits.as_ref().map_or(Ok(()), |limits| limits.check(plans))
    }

    /// Takes what one instance needs: a permit, and a slot for each memory that lives in one.
    ///
    /// # Errors
    /// `pool_exhausted`, naming the cap; `memory_limit` as in `check`; `out_of_memory` when the
    /// system refuses a mapping.
    pub fn acquire(self: &Arc<Self>, plans: &[MemoryPlan], tables: usize) -> Result<Lease> {
        let lease = self.acquire_linked(1, plans, tables, usize::MAX)?;
        lease.ok_or_else(|| Error::internal("there are more bytes than addresses"))
    }

    /// As `acquire`, for `modules` modules that share one store: one instance to its user, as many
    /// core instances, and the memories and tables of all of them. `None` when more than `clears`
    /// bytes of what other images left in the slots would have to be cleared: nothing is taken.
    ///
    /// # Errors
    /// As `acquire`.
    pub fn acquire_linked(
        self: &Arc<Self>,
        modules: usize,
        plans: &[MemoryPlan],
        tables: usize,
        clears: usize,
    ) -> Result<Option<Lease>> {
        self.check(plans)?;
        let (memories, tables) = (plans.len() as u64, tables as u64);
        let need = Live { instances: 1, core_instances: modules as u64, memories, tables };
        let Some(picks) = self.pick(plans, need, clears)? else { return Ok(None) };
        // From here on the counts are held by what is dropped on an error.
        let plain = plans.iter().filter(|plan| !plan.slotted).count();
        let permit = Permit::new(self.clone(), Live { memories: plain as u64, ..need });
        let mut picks = picks.into_iter();
        let mut offers = Vec::with_capacity(plans.len());
        for plan in plans {
            offers.push(match plan.slotted {
                true => Offer::Slot(Held::new(self.clone(), picks.next().flatten(), plan)),
                false => Offer::Plain { limit: self.plain_limit() },
            });
        }
        for offer in &mut offers {
            offer.prepare()?;
        }
        Ok(Some(Lease::new(offers, permit)))
    }

    /// Counts the instance in and takes its slots, each `None` if yet to be mapped; or takes nothing
    /// when more than `clears` bytes would have to be cleared.
    fn pick(&self, plans: &[MemoryPlan], need: Live, clears: usize) -> Result<Option<Picks>> {
        let mut state = self.state.lock();
        if let Some(limits) = &self.limits {
            limits.admit(&state.live, &need)?;
        }
        let slots = u64::from(self.slots()) + state.restoring;
        let slotted = || plans.iter().filter(|plan| plan.slotted);
        let picks: Picks =
            slotted().map(|plan| state.slot_for(plan, self.arena.as_ref(), slots)).collect();
        let foreign = picks.iter().zip(slotted()).map(|(pick, plan)| foreign(pick.as_ref(), plan));
        if foreign.sum::<usize>() > clears {
            let plans: Vec<&MemoryPlan> = slotted().collect();
            picks.into_iter().zip(plans).rev().for_each(|(slot, plan)| state.undo(slot, plan));
            return Ok(None);
        }
        state.live.add(&need);
        Ok(Some(picks))
    }

    fn slots(&self) -> u32 {
        self.limits.as_ref().map_or(0, |limits| limits.memories)
    }

    fn plain_limit(&self) -> usize {
        if self.limits.is_some() { self.capacity } else { usize::MAX }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that a memory may have here.
    pub(crate) fn most(&self) -> u64 {
        self.plain_limit() as u64
    }

    /// True when a memory may leave its slot to grow beyond it.
    pub(super) fn may_outgrow(&self) -> bool {
        self.limits.is_none()
    }

    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    pub(super) fn has_spare(&self) -> bool {
        self.spare
    }

    pub(super) fn verifies(&self) -> bool {
        self.verify
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A memory is live no more; its slot comes back later.
    pub(super) fn begin_restoring(&self) {
        let mut state = self.state.lock();
        state.end_memory(true);
        state.restoring += 1;
    }

    /// Takes a restored slot back, of a memory that was live until then or not.
    pub(super) fn put_back(&self, slot: Slot, was_live: bool) {
        let Some(key) = slot.key() else { return self.put_blank(Some(slot), was_live) };
        let mut state = self.state.lock();
        state.end_memory(was_live);
        state.idle.put(key, slot);
        let surplus = self.arena.is_none() && state.idle.len() > ON_DEMAND_IDLE;
        let surplus = if surplus { state.idle.take_oldest() } else { None };
        drop(state);
        drop(surplus);
    }

    /// As `put_back`, for a slot that may hold anything, or was never mapped.
    pub(super) fn discard(&self, slot: Option<Slot>, was_live: bool) {
        let slot = slot.and_then(|slot| self.blanked(slot));
        self.put_blank(slot, was_live);
    }

    /// The slot without its bytes; `None` when the system refuses: it is never used again.
    fn blanked(&self, mut slot: Slot) -> Option<Slot> {
        if slot.is_own() || slot.blank().is_ok() {
            return Some(slot);
        }
        self.counters.quarantine();
        None
    }

    fn put_blank(&self, slot: Option<Slot>, was_live: bool) {
        let mut state = self.state.lock();
        state.end_memory(was_live);
        let own = slot.and_then(|slot| state.keep_blank(slot));
        drop(state);
        drop(own);
    }

    pub(super) fn release(&self, live: &Live) {
        self.state.lock().live.remove(live);
    }

    /// Takes the bytes of an image out of every idle slot.
    pub(super) fn forget(&self, image: u64) {
        let slots = self.state.lock().idle.take_image(image);
        for slot in slots {
            if let Some(slot) = self.blanked(slot) {
                let own = self.state.lock().keep_blank(slot);
                drop(own);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Where a mapping failed, part of the range may have gone to somebody else meanwhile.
        if self.info().quarantined > 0 {
            std::mem::forget(self.arena.take());
        }
    }
}

impl State {
    /// Its image's last slot, else one that holds nothing, else the one idle for longest.
    fn slot_for(&mut self, plan: &MemoryPlan, arena: Option<&Arena>, slots: u64) -> Option<Slot> {
        if let Some(slot) = self.idle.take(key_of(plan)).or_else(|| self.blank.pop()) {
            return Some(slot);
        }
        let arena = arena?;
        if u64::from(self.fresh) < slots {
            self.fresh += 1;
            return Some(arena.slot(self.fresh - 1));
        }
        self.idle.take_oldest()
    }

    /// Counts a memory out, which was live or being restored.
    fn end_memory(&mut self, was_live: bool) {
        let count = if was_live { &mut self.live.memories } else { &mut self.restoring };
        *count = count.saturating_sub(1);
    }

    /// Puts a slot back where `slot_for` had it.
    fn undo(&mut self, slot: Option<Slot>, plan: &MemoryPlan) {
        let Some(slot) = slot else { return };
        match slot.key() {
            None => self.blank.push(slot),
            Some(key) if key == key_of(plan) => self.idle.put(key, slot),
            Some(key) => self.idle.put_oldest(key, slot),
        }
    }

    /// Keeps an arena's slot; one that owns its range is handed back to be unmapped.
    fn keep_blank(&mut self, slot: Slot) -> Option<Slot> {
        if slot.is_own() {
            return Some(slot);
        }
        self.blank.push(slot);
        None
    }
}

impl Live {
    fn add(&mut self, other: &Live) {
        self.instances += other.instances;
        self.core_instances += other.core_instances;
        self.memories += other.memories;
        self.tables += other.tables;
    }

    fn remove(&mut self, other: &Live) {
        self.instances = self.instances.saturating_sub(other.instances);
        self.core_instances = self.core_instances.saturating_sub(other.core_instances);
        self.memories = self.memories.saturating_sub(other.memories);
        self.tables = self.tables.saturating_sub(other.tables);
    }
}

/// The slot for each memory that lives in one.
type Picks = Vec<Option<Slot>>;

fn key_of(plan: &MemoryPlan) -> Key {
    let id = plan.image.as_ref().map_or(0, |image| image.id());
    Key { image: id, min: plan.min_bytes as usize }
}

/// Bytes that may have pages of another image.
fn foreign(slot: Option<&Slot>, plan: &MemoryPlan) -> usize {
    slot.filter(|slot| slot.key() != Some(key_of(plan))).map_or(0, Slot::extent)
}

fn too_large(memories: u32, error: &io::Error) -> Error {
    let gib = Arena::size(memories).unwrap_or(usize::MAX) >> 30;
    let text = format!(
        "a pool of {memories} memories reserves {gib} GiB of address space, \
         which this system refuses: {error}"
    );
    Error::new(Class::Compile, Kind::PoolTooLarge, text)
}
