//! A process that has no more mappings: calls are told so by kind, and go on when there are some
//! again. Alone in its process, which cannot do much meanwhile.

#[path = "guest/support.rs"]
#[allow(dead_code)]
mod support;

use std::ptr;

use support::{Recorder, call, done, guest, submit};
use wasmtime_beam::{Class, Kind};

const PAGE: usize = 4096;

/// Pages of alternate protection, each a mapping: as many as the system allows.
struct Hoard {
    base: *mut libc::c_void,
    len: usize,
}

impl Hoard {
    fn new() -> Self {
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        let len = (most.trim().parse::<usize>().unwrap() + 2) * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        for page in (0..len / PAGE).step_by(2) {
            // SAFETY: a page of the mapping made above.
            let refused =
                unsafe { libc::mprotect(base.byte_add(page * PAGE), PAGE, libc::PROT_READ) != 0 };
            if refused {
                return Hoard { base, len };
            }
        }
        panic!("the system has no limit of mappings");
    }
}

impl Drop for Hoard {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nothing uses.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// A call needs a stack, which is a mapping and its guard.
#[test]
fn a_call_without_a_mapping_for_its_stack_is_told() {
    let guest = guest(r#"(module (func (export "f")))"#);
    let ask = || {
        submit(&guest, &Recorder::new(), call("f", &[]));
        done(&guest)
    };
    let hoard = Hoard::new();
    let refused = ask();
    drop(hoard);
    let error = refused.expect_err("there is no mapping for a stack");
    assert_eq!((error.class, error.kind), (Class::Limit, Kind::OutOfMemory), "{error}");
    assert!(error.message.contains("stack"), "{error}");
    assert_eq!(ask(), Ok(vec![]));
}
