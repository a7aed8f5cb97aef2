//! Children of the process: they share its pages until one of both writes, and inherit no file.
//! Rule: between `fork` and its end a child makes system calls only, for other threads hold locks.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::support::*;
use wasmtime_beam::memory::{Image, Pool};

/// A child that does nothing, with all the pages of its parent.
struct Child(libc::pid_t);

impl Child {
    fn new() -> Child {
        match unsafe { libc::fork() } {
            0 => loop {
                unsafe { libc::pause() };
            },
            pid => {
                assert!(pid > 0, "{}", std::io::Error::last_os_error());
                Child(pid)
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Children made in the middle of a tenancy live through the reset, or end before it, and hold the
/// pages of several tenants; the next one sees the image.
#[test]
fn children_share_the_pages_of_tenants() {
    let mut random = Random(0xc411d);
    for (name, pool) in policies() {
        let known = Known::new(16, Random(47).bytes(4 * WASM_PAGE + 100));
        let mut children = Vec::new();
        for round in 0..rounds(10, 40, 500) {
            let mut raw = known.tenant(&pool, name);
            vandalize(&mut random, &mut raw);
            children.push(Child::new());
            if round % 2 == 0 {
                vandalize(&mut random, &mut raw);
            }
            if random.below(2) == 0 {
                children.remove(random.below(children.len()));
            }
            drop(raw);
            if random.below(4) == 0 {
                // Idle slots are shared, too.
                children.push(Child::new());
            }
            if children.len() > 6 {
                children.clear();
            }
        }
        drop(known.tenant(&pool, name));
        assert_sound(&pool, name);
    }
}

/// Children of every kind are made while tenants come and go.
#[test]
fn children_are_made_at_any_moment() {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            let mut made = 0;
            while !done.load(Relaxed) {
                drop(Child::new());
                // The standard library's own way, and `fork` followed by `exec`.
                assert!(Command::new("true").status().unwrap().success());
                let mut forked = Command::new("true");
                unsafe { forked.pre_exec(|| Ok(())) };
                assert!(forked.status().unwrap().success());
                made += 3;
            }
            made
        });
        let until = Done(&done);
        for (name, pool) in policies() {
            let known = Known::new(8, Random(53).bytes(2 * WASM_PAGE + 100));
            let mut random = Random(59);
            for _ in 0..rounds(100, 400, 5_000) {
                vandalize(&mut random, &mut known.tenant(&pool, name));
            }
            assert_sound(&pool, name);
        }
        drop(until);
        println!("{} children were made meanwhile", maker.join().unwrap());
    });
}

/// A program that is started has no file of an image, and no view of the parent's pages.
#[test]
fn a_program_inherits_nothing() {
    let pool = Pool::pooled(&options(1, 1 << 20)).unwrap();
    let known = Known::new(2, b"image".to_vec());
    let mut raw = known.tenant(&pool, "before");
    raw.bytes().fill(0x5e);
    let _image = Image::from_bytes(b"another").unwrap();
    for script in ["ls -l /proc/self/fd", "cat /proc/self/maps"] {
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && !text.is_empty());
        for foreign in ["memfd", "wasm-image", "pagemap"] {
            assert!(!text.contains(foreign), "{script}: {text}");
        }
    }
    let own = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(own.contains("wasm-image"), "the name that is looked for: {own}");
    drop(raw);
    drop(known.tenant(&pool, "after"));
    assert_sound(&pool, "program");
}
