//! The clocks a guest may read, and those it may not.

use crate::guest::{Guest, SUCCESS, i, l, nothing};
use std::time::{SystemTime, UNIX_EPOCH};
use wasmtime_beam::options::{Clocks, WasiOptions};

const NOTCAPABLE: i32 = 76;
const MARK: u64 = 0x1122_3344_5566_7788;

fn monotonic_only() -> WasiOptions {
    WasiOptions { clocks: Clocks::Monotonic, ..nothing() }
}

/// Reads a clock; the errno and what stands at the out-pointer, which held a mark.
fn time(guest: &mut Guest, id: i32) -> (i32, u64) {
    let out = guest.put(&MARK.to_le_bytes());
    (guest.call("clock_time_get", &[i(id), l(1), i(out)]), guest.get_u64(out))
}

fn resolution(guest: &mut Guest, id: i32) -> (i32, u64) {
    let out = guest.put(&MARK.to_le_bytes());
    (guest.call("clock_res_get", &[i(id), i(out)]), guest.get_u64(out))
}

/// The host's monotonic clock by another road: seconds since it started counting.
fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// With either option the monotonic clock is the host's own, not zeroed at instantiation, so that
/// an instance made later reads a later time.
#[test]
fn the_monotonic_clock_is_the_hosts() {
    for options in [nothing(), monotonic_only()] {
        let (errno, first) = time(&mut Guest::new(&options), 1);
        let (again, second) = time(&mut Guest::new(&options), 1);
        assert_eq!((errno, again), (SUCCESS, SUCCESS));
        assert!(second > first, "{second} after {first}");
        if cfg!(target_os = "linux") {
            let seconds = second as f64 / 1e9;
            assert!((seconds - uptime()).abs() < 5.0, "{seconds} against {}", uptime());
        }
    }
}

/// `all` gives the wall clock too.
#[test]
fn all_clocks_include_the_wall_clock() {
    let (errno, now) = time(&mut Guest::new(&nothing()), 0);
    let host = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert_eq!(errno, SUCCESS);
    assert!(host.abs_diff(now) < 10_000_000_000, "{now} against {host}");
    assert_eq!(resolution(&mut Guest::new(&nothing()), 0).0, SUCCESS);
}

/// `monotonic` refuses every other id, those that do not exist included, and writes nothing.
#[test]
fn other_clocks_are_refused_and_nothing_is_written() {
    let mut guest = Guest::new(&monotonic_only());
    for id in [0, 2, 3, 4, 77, -1, i32::MIN] {
        assert_eq!(time(&mut guest, id), (NOTCAPABLE, MARK), "clock {id}");
        assert_eq!(resolution(&mut guest, id), (NOTCAPABLE, MARK), "resolution of {id}");
    }
}

/// Not even the out-pointer of a refused clock is looked at.
#[test]
fn a_refused_clock_does_not_look_at_its_pointer() {
    let mut guest = Guest::new(&monotonic_only());
    assert_eq!(guest.call("clock_time_get", &[i(0), l(1), i(-1)]), NOTCAPABLE);
    assert!(guest.try_call("clock_time_get", &[i(1), l(1), i(-1)]).is_err());
}

/// The resolution of the monotonic clock is that of the host: some nanoseconds, never zero.
#[test]
fn the_monotonic_clock_has_a_resolution() {
    for options in [nothing(), monotonic_only()] {
        let (errno, nanoseconds) = resolution(&mut Guest::new(&options), 1);
        assert_eq!(errno, SUCCESS);
        assert!((1..=100_000_000).contains(&nanoseconds), "{nanoseconds}");
    }
}

/// The older interface refuses the same.
#[test]
fn the_unstable_interface_refuses_the_same_clocks() {
    let mut guest = Guest::unstable(&monotonic_only());
    assert_eq!(time(&mut guest, 0), (NOTCAPABLE, MARK));
    assert_eq!(time(&mut guest, 1).0, SUCCESS);
}
