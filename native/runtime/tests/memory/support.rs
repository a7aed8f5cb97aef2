//! Shared by the tests of memory: pools, raw memories taken as a store takes them, random numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use wasmtime::{Config, Engine, LinearMemory, MemoryCreator, MemoryType};
use wasmtime_beam::memory::{
    Creator, Image, MEMORY_GUARD, MEMORY_RESERVATION, MemoryPlan, Permit, Pool, PoolInfo, configure,
};
use wasmtime_beam::options::PoolOptions;

pub const WASM_PAGE: usize = 64 << 10;

/// A page of the host.
pub const PAGE: usize = 4096;

pub fn options(memories: u32, keep_resident: u64) -> PoolOptions {
    PoolOptions {
        instances: memories,
        max_memory: 256 << 20,
        keep_resident,
        core_instances: memories,
        tables: 1000,
        memories,
        verify: true,
    }
}

pub fn plan(min_pages: usize, content: &[u8]) -> MemoryPlan {
    MemoryPlan {
        min_bytes: (min_pages * WASM_PAGE) as u64,
        max_bytes: None,
        page_size_log2: 16,
        is64: false,
        shared: false,
        slotted: true,
        image: (!content.is_empty()).then(|| Image::from_bytes(content).unwrap()),
    }
}

pub fn engine(change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config::new();
    configure(&mut config);
    change(&mut config);
    Engine::new(&config).unwrap()
}

/// A memory of an instance that does not run.
pub struct Raw {
    pub memory: Box<dyn LinearMemory>,
    _permit: Permit,
}

/// Live memories, warm slots and live instances.
pub fn counts(pool: &Pool) -> (u64, u64, u64) {
    let PoolInfo { used, warm, instances, .. } = pool.info();
    (used, warm, instances)
}

/// Pages of a range that are in memory.
pub fn resident(at: usize, len: usize) -> usize {
    let mut pages = vec![0u8; len / 4096];
    let code = unsafe { libc::mincore(at as *mut _, len, pages.as_mut_ptr()) };
    assert_eq!(code, 0);
    pages.iter().filter(|page| **page & 1 != 0).count()
}

/// Asks the creator as a store does.
pub fn request(min: usize, is64: bool) -> Result<Box<dyn LinearMemory>, String> {
    let pages = (min / WASM_PAGE) as u64;
    let ty = match is64 {
        true => MemoryType::new64(pages, None),
        false => MemoryType::new(pages as u32, None),
    };
    Creator.new_memory(ty, min, None, Some(MEMORY_RESERVATION as usize), MEMORY_GUARD as usize)
}

impl Raw {
    pub fn take(pool: &Arc<Pool>, plan: &MemoryPlan) -> Raw {
        let lease = pool.acquire(std::slice::from_ref(plan), 0).unwrap();
        let (memory, permit) = lease.offer(|| request(plan.min_bytes as usize, plan.is64));
        assert_eq!(permit.unclaimed(), 0);
        Raw { memory: memory.unwrap(), _permit: permit }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let (base, len) = (self.memory.as_ptr(), self.memory.byte_size());
        unsafe { std::slice::from_raw_parts_mut(base, len) }
    }

    pub fn grow(&mut self, pages: usize) {
        self.memory.grow_to(self.memory.byte_size() + pages * WASM_PAGE).unwrap();
    }

    /// Nothing of an earlier tenant is there.
    pub fn assert_fresh(&mut self, plan: &MemoryPlan) {
        assert_eq!(self.memory.byte_size(), plan.min_bytes as usize);
        let content = plan.image.as_ref().map_or(&[][..], |image| image.bytes()).to_vec();
        let bytes = self.bytes();
        assert!(bytes[..content.len()] == content, "the image is not intact");
        let dirty = bytes[content.len()..].iter().position(|byte| *byte != 0);
        assert_eq!(dirty, None, "a byte beyond the image is not zero");
    }
}

/// A memory whose bytes are known from what it was made of, and not asked of its image.
pub struct Known {
    pub plan: MemoryPlan,
    bytes: Vec<u8>,
}

impl Known {
    pub fn new(min_pages: usize, content: Vec<u8>) -> Known {
        let plan = plan(min_pages, &content);
        let mut bytes = content;
        bytes.resize(min_pages * WASM_PAGE, 0);
        Known { plan, bytes }
    }

    /// A tenant that finds exactly these bytes.
    pub fn tenant(&self, pool: &Arc<Pool>, name: &str) -> Raw {
        let mut raw = Raw::take(pool, &self.plan);
        assert_eq!(raw.memory.byte_size(), self.bytes.len(), "{name}");
        let foreign = raw.bytes().iter().zip(&self.bytes).position(|(is, was)| is != was);
        assert_eq!(foreign, None, "{name}");
        raw
    }
}

/// Tells another thread that this one is done, also when it panics.
pub struct Done<'a>(pub &'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// How often to do it: in a quick run, normally, and with `FULL=1`.
pub fn rounds(quick: usize, normal: usize, full: usize) -> usize {
    let is_set = |name| std::env::var(name).is_ok_and(|value| value == "1");
    match (is_set("FULL"), is_set("QUICK")) {
        (true, _) => full,
        (_, true) => quick,
        _ => normal,
    }
}

/// Pools of one slot under each way of restoring.
pub fn policies() -> Vec<(&'static str, Arc<Pool>)> {
    vec![
        ("all in place", Pool::pooled(&options(1, 256 << 20)).unwrap()),
        ("some in place", Pool::pooled(&options(1, 40 * PAGE as u64)).unwrap()),
        ("less than a page in place", Pool::pooled(&options(1, 100)).unwrap()),
        ("dropped", Pool::pooled(&options(1, 0)).unwrap()),
        ("without a scan", Pool::pooled_without_scan(&options(1, 256 << 20)).unwrap()),
        ("on demand", Pool::on_demand()),
    ]
}

pub fn assert_sound(pool: &Pool, name: &str) {
    let info = pool.info();
    assert_eq!(info.verify_failures, 0, "{name}");
    assert_eq!(info.quarantined, 0, "{name}");
    assert_eq!((info.used, info.instances), (0, 0), "{name}");
}

/// Writes here and there, in runs, at page borders, and into grown memory.
pub fn vandalize(random: &mut Random, raw: &mut Raw) {
    if random.below(3) == 0 {
        raw.grow(1 + random.below(20));
    }
    for _ in 0..random.below(200) {
        let len = raw.bytes().len();
        match random.below(4) {
            0 => raw.bytes()[random.below(len)] ^= 0x5a,
            1 => {
                let page = random.below(len / PAGE) * PAGE;
                raw.bytes()[page + random.below(2) * (PAGE - 1)] = 0xff;
            }
            2 => {
                let (at, run) = (random.below(len), random.below(5 * PAGE));
                raw.bytes()[at..(at + run).min(len)].fill(random.next() as u8);
            }
            _ => {
                let (from, to) = (random.below(len / 2), random.below(len / 2));
                raw.bytes().copy_within(from..from + random.below(3 * PAGE), to);
            }
        }
    }
}

/// Xorshift: the same numbers in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8 | 1).collect()
    }
}
