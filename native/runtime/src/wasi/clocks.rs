//! The clocks of a guest. The monotonic one is the host's own, in absolute nanoseconds, whatever the
//! option says: a reading that a snapshot carries must lie in the past of the instances made from it.

use crate::clock;
use crate::options::Clocks;
use std::time::Duration;
use wasmtime_wasi::HostMonotonicClock;

/// Preview 1's id of the realtime (wall) clock.
pub(super) const REALTIME: u32 = 0;
/// Preview 1's id of the monotonic clock.
pub(super) const MONOTONIC: u32 = 1;

/// The last id that preview 1 knows: the CPU time of a thread.
const LAST: u32 = 3;

/// The host's `CLOCK_MONOTONIC`, not zeroed at instantiation.
pub(super) struct Monotonic;

impl HostMonotonicClock for Monotonic {
    fn resolution(&self) -> u64 {
        as_nanoseconds(clock::resolution(libc::CLOCK_MONOTONIC)).max(1)
    }

    fn now(&self) -> u64 {
        monotonic_now()
    }
}

/// The host's monotonic clock in nanoseconds.
pub(super) fn monotonic_now() -> u64 {
    as_nanoseconds(clock::now(libc::CLOCK_MONOTONIC))
}

/// The wall clock in nanoseconds since 1970; zero on a host whose clock stands before that.
pub(super) fn realtime_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    as_nanoseconds(since.unwrap_or(Duration::ZERO))
}

/// True when the options do not let the guest read this clock.
pub(super) fn refused(clocks: Clocks, id: u32) -> bool {
    clocks == Clocks::Monotonic && id != MONOTONIC
}

/// True for a clock of preview 1, which this host need not have.
pub(super) fn is_known(id: u32) -> bool {
    id <= LAST
}

fn as_nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
