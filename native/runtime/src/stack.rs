//! Stacks of fibers, reused: a fresh mapping would cost its page faults in every call.
//! A stack is never zeroed; guests cannot read it.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use wasmtime::{StackCreator, StackMemory};

use crate::error::{Class, Error, Kind};

/// Idle stacks kept at most; the rest are unmapped.
const KEPT: usize = 64;

/// Hands out stacks and takes them back.
#[derive(Default)]
pub struct Stacks {
    idle: Arc<Mutex<Vec<Mapping>>>,
}

// SAFETY: `Mapping::new` gives page-aligned, zero-filled memory with a guard page below it.
unsafe impl StackCreator for Stacks {
    fn new_stack(&self, size: usize, _zeroed: bool) -> wasmtime::Result<Box<dyn StackMemory>> {
        let fits = |mapping: &Mapping| mapping.len >= size + page();
        let idle = self.idle.lock().pop_if(|mapping| fits(mapping));
        let mapping = match idle {
            Some(mapping) => mapping,
            None => Mapping::new(size)?,
        };
        Ok(Box::new(Stack { mapping: Some(mapping), home: self.idle.clone() }))
    }
}

struct Stack {
    mapping: Option<Mapping>,
    home: Arc<Mutex<Vec<Mapping>>>,
}

impl Stack {
    fn base(&self) -> usize {
        self.mapping.as_ref().map_or(0, |m| m.base)
    }

    fn len(&self) -> usize {
        self.mapping.as_ref().map_or(0, |m| m.len)
    }
}

// SAFETY: the mapping is page aligned, its lowest page is the guard, and it lives as long as `self`.
unsafe impl StackMemory for Stack {
    fn top(&self) -> *mut u8 {
        (self.base() + self.len()) as *mut u8
    }

    fn range(&self) -> Range<usize> {
        self.base() + page()..self.base() + self.len()
    }

    fn guard_range(&self) -> Range<*mut u8> {
        self.base() as *mut u8..(self.base() + page()) as *mut u8
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let mut idle = self.home.lock();
        if idle.len() < KEPT {
            idle.extend(self.mapping.take());
        }
    }
}

/// An anonymous mapping with a guard page at its low end.
struct Mapping {
    base: usize,
    len: usize,
}

impl Mapping {
    fn new(size: usize) -> wasmtime::Result<Self> {
        let len = size.next_multiple_of(page()) + page();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(refused());
        }
        let mapping = Mapping { base: base as usize, len };
        // SAFETY: the first page of the mapping made above.
        if unsafe { libc::mprotect(base, page(), libc::PROT_NONE) } != 0 {
            return Err(refused());
        }
        Ok(mapping)
    }
}

/// No memory, or no more mappings: each stack is two, for its guard.
fn refused() -> wasmtime::Error {
    let why = std::io::Error::last_os_error();
    let message = format!("the system refused the guest's stack: {why}");
    Error::new(Class::Limit, Kind::OutOfMemory, message).into()
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing uses any more.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.len) };
    }
}

fn page() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    // SAFETY: sysconf has no preconditions.
    *SIZE.get_or_init(|| unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize })
}
