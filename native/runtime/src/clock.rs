//! The clocks of the system, which count from the same moment for everybody on it.

use std::time::Duration;

use libc::{c_int, clockid_t, timespec};

/// What a clock tells.
pub(crate) fn now(clock: clockid_t) -> Duration {
    // SAFETY: `time` is a valid place for one timespec.
    read(|time| unsafe { libc::clock_gettime(clock, time) })
}

/// How far what it tells may be behind.
pub(crate) fn resolution(clock: clockid_t) -> Duration {
    // SAFETY: as in `now`.
    read(|time| unsafe { libc::clock_getres(clock, time) })
}

fn read(read: impl FnOnce(*mut timespec) -> c_int) -> Duration {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // It fails for an unknown clock only; the answer is then zero, not a made-up time.
    if read(&mut time) != 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}
