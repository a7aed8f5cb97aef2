//! What a guest may ask of its host: randomness, huge writes, exits.

use crate::guest::{Guest, SUCCESS, block_on, i, nothing};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use wasmtime_beam::options::{Output, Stdin, WasiOptions};
use wasmtime_beam::wasi::{WasiTemplate, exit_status};

const MIB: usize = 1 << 20;

/// Runs to the end; how often the guest gave way to its runner.
fn yields<F: Future>(future: F) -> (F::Output, u32) {
    let polls = Cell::new(0);
    let mut future = pin!(future);
    let output = block_on(poll_fn(|cx| {
        polls.set(polls.get() + 1);
        future.as_mut().poll(cx)
    }));
    (output, polls.get() - 1)
}

/// Bytes are random in every instance: none is seeded from another, and no byte stays as it was.
#[test]
fn randomness_differs_from_instance_to_instance() {
    let draw = || {
        let mut guest = Guest::new(&nothing());
        let place = guest.put(&[0; 5000]);
        assert_eq!(guest.call("random_get", &[i(place), i(4999)]), SUCCESS);
        (guest.get(place, 4999), guest.get(place + 4999, 1))
    };
    let ((one, after), (two, _)) = (draw(), draw());
    assert_ne!(one, two);
    let distinct: std::collections::HashSet<u8> = one.iter().copied().collect();
    assert!(distinct.len() > 200, "{} of 256 values", distinct.len());
    assert_eq!(after, [0], "a byte beyond the buffer was written");
}

/// A guest can fill what it has, giving way meanwhile; the host holds a few KiB of it.
#[test]
fn much_randomness_is_served_in_slices() {
    let mut guest = Guest::new(&nothing());
    let (result, yields) = yields(guest.start("random_get", &[i(MIB as i32), i(100 * MIB as i32)]));
    assert_eq!(result.unwrap(), SUCCESS);
    assert!(yields >= 100, "{yields}");
    assert_ne!(guest.get(101 * MIB as i32 - 16, 16), [0; 16]);
}

/// Asking for more than it has traps before any byte is made.
#[test]
fn randomness_beyond_the_memory_traps() {
    let mut guest = Guest::new(&nothing());
    for (place, size) in [(0, -1), (-1, 2), (-1, -1), (128 * MIB as i32, 1)] {
        assert!(guest.try_call("random_get", &[i(place), i(size)]).is_err(), "{place} {size}");
    }
    assert_eq!(guest.call("random_get", &[i(128 * MIB as i32), i(0)]), SUCCESS);
    assert_eq!(guest.get(0, 1024), [0; 1024]);
}

/// A huge write to a captured stream is whole for the guest, bounded for the host, and gives way.
#[test]
fn a_huge_write_is_bounded_and_gives_way() {
    let output_limit = MIB as u64;
    let mut guest = Guest::new(&WasiOptions { stdout: Output::Capture, output_limit, ..nothing() });
    let (iovec, written) = (guest.iovec(MIB as i32, 100 * MIB), guest.room(4));
    let (result, yields) = yields(guest.start("fd_write", &[i(1), i(iovec), i(1), i(written)]));
    assert_eq!(result.unwrap(), SUCCESS);
    assert_eq!(guest.get_u32(written) as usize, 100 * MIB);
    assert!(yields >= 100, "{yields}");
    let taken = guest.store.data().captured().take();
    assert_eq!((taken.stdout.len(), taken.dropped), (MIB, (99 * MIB as u64, 0)));
}

/// Output that goes nowhere gives way as well.
#[test]
fn a_huge_write_into_the_void_gives_way() {
    let mut guest = Guest::new(&nothing());
    let (iovec, written) = (guest.iovec(MIB as i32, 100 * MIB), guest.room(4));
    let (result, yields) = yields(guest.start("fd_write", &[i(2), i(iovec), i(1), i(written)]));
    assert_eq!((result.unwrap(), yields >= 100), (SUCCESS, true));
}

/// Buffers and lists of buffers beyond the memory trap; a list too long for the host is an errno.
#[test]
fn buffers_beyond_the_memory_are_refused() {
    let mut guest = Guest::new(&nothing());
    let written = guest.room(4);
    let beyond = guest.iovec(-4096, 8192);
    assert!(guest.try_call("fd_write", &[i(1), i(beyond), i(1), i(written)]).is_err());
    assert!(guest.try_call("fd_write", &[i(1), i(-8), i(4), i(written)]).is_err());
    let nomem = 48;
    let arguments = [i(1), i(0), i(i32::MAX), i(written)];
    assert_eq!(guest.call("fd_write", &arguments), nomem);
}

/// Every status reaches the host, those included that wasmtime-wasi alone refuses.
#[test]
fn every_exit_status_reaches_the_host() {
    for status in [0, 1, 125, 126, 255, 256, -1] {
        let mut guest = Guest::new(&nothing());
        let error = guest.try_call("proc_exit", &[i(status)]).unwrap_err();
        assert_eq!(exit_status(&error), Some(status));
    }
}

/// A trap is no exit.
#[test]
fn a_trap_is_no_exit() {
    let mut guest = Guest::new(&nothing());
    let error = guest.try_call("random_get", &[i(-1), i(2)]).unwrap_err();
    assert_eq!(exit_status(&error), None);
}

/// Threads of this process whose name a guest's calls could have made grow.
fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("wasmtime") || name.starts_with("tokio")).count()
}

/// Instances that sleep, read and write share what threads there are: one timer, one for each
/// inherited stream.
#[test]
#[cfg(target_os = "linux")]
fn instances_start_no_threads_of_their_own() {
    for _ in 0..50 {
        let stdin = Stdin::Binary(b"x".as_slice().into());
        let mut guest = Guest::new(&WasiOptions { stdin, stdout: Output::Capture, ..nothing() });
        let mut sleep = vec![0; 48];
        sleep[24..28].copy_from_slice(&1_000_000u32.to_le_bytes());
        let (sleep, out) = (guest.put(&sleep), guest.room(36));
        let arguments = [i(sleep), i(out), i(1), i(out + 32)];
        assert_eq!(guest.call("poll_oneoff", &arguments), SUCCESS);
        assert_eq!((guest.read(0, 1), guest.write(1, b"y")), (Ok(b"x".to_vec()), SUCCESS));
    }
    let threads = threads();
    assert!((1..=4).contains(&threads), "{threads}");
}

/// A template serves threads that instantiate at the same time, and a context moves to its runner.
#[test]
fn a_template_is_shared_between_threads() {
    let options = WasiOptions { stdout: Output::Capture, ..nothing() };
    let template = WasiTemplate::new(&options).unwrap();
    let outputs: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let run = |byte: u8| {
            let template = &template;
            scope.spawn(move || {
                let mut guest = Guest::from_template(template);
                assert_eq!(guest.write(1, &[byte; 3]), SUCCESS);
                guest.store.data().captured().take().stdout
            })
        };
        let running: Vec<_> = (0..4).map(run).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outputs, [[0; 3], [1; 3], [2; 3], [3; 3]]);
}
