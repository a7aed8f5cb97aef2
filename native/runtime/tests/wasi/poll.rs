//! `poll_oneoff`: sleeps are awaits that can be dropped, however long and however many.

use crate::guest::{Guest, SUCCESS, i, nothing, poll_for};
use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wasmtime_beam::options::{Clocks, Output, Stdin, WasiOptions};

const INVAL: i32 = 28;
const REALTIME: u32 = 0;
const MONOTONIC: u32 = 1;
const MILLISECOND: u64 = 1_000_000;
const YEAR: u64 = 365 * 24 * 3600 * 1000 * MILLISECOND;

/// A timer of the layout of preview 1, with this userdata.
fn timer(userdata: u64, id: u32, timeout: u64, absolute: bool) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    bytes[..8].copy_from_slice(&userdata.to_le_bytes());
    bytes[16..20].copy_from_slice(&id.to_le_bytes());
    bytes[24..32].copy_from_slice(&timeout.to_le_bytes());
    bytes[40] = absolute.into();
    bytes
}

fn ready(userdata: u64, tag: u8, fd: u32) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    bytes[..8].copy_from_slice(&userdata.to_le_bytes());
    bytes[8] = tag;
    bytes[16..20].copy_from_slice(&fd.to_le_bytes());
    bytes
}

struct Call {
    events: i32,
    count: i32,
    arguments: [wasmtime::Val; 4],
}

fn prepare(guest: &mut Guest, subscriptions: &[Vec<u8>]) -> Call {
    let place = guest.put(&subscriptions.concat());
    let events = guest.room(32 * subscriptions.len());
    let count = guest.room(4);
    let arguments = [i(place), i(events), i(subscriptions.len() as i32), i(count)];
    Call { events, count, arguments }
}

/// The events as userdata, errno and type.
fn events(guest: &Guest, call: &Call) -> Vec<(u64, u16, u8)> {
    let count = guest.get_u32(call.count) as usize;
    let bytes = guest.get(call.events, 32 * count);
    let event = |event: &[u8]| {
        let errno = u16::from_le_bytes([event[8], event[9]]);
        (u64::from_le_bytes(event[..8].try_into().unwrap()), errno, event[10])
    };
    bytes.chunks_exact(32).map(event).collect()
}

/// Polls to the end: the events and how long it took.
fn poll(guest: &mut Guest, subscriptions: &[Vec<u8>]) -> (Vec<(u64, u16, u8)>, Duration) {
    let call = prepare(guest, subscriptions);
    let start = Instant::now();
    assert_eq!(guest.call("poll_oneoff", &call.arguments), SUCCESS);
    (events(guest, &call), start.elapsed())
}

fn monotonic(guest: &mut Guest) -> u64 {
    let out = guest.room(8);
    let arguments = [i(MONOTONIC as i32), wasmtime::Val::I64(1), i(out)];
    assert_eq!(guest.call("clock_time_get", &arguments), SUCCESS);
    guest.get_u64(out)
}

/// A relative sleep takes its time, and the guest sees its own userdata.
#[test]
fn a_sleep_takes_its_time() {
    let mut guest = Guest::new(&nothing());
    for clock in [MONOTONIC, REALTIME] {
        let (events, took) = poll(&mut guest, &[timer(7, clock, 30 * MILLISECOND, false)]);
        assert_eq!(events, [(7, 0, 0)]);
        assert!(took >= Duration::from_millis(30) && took < Duration::from_secs(5), "{took:?}");
    }
}

/// An absolute sleep ends when the clock that the guest reads shows its time.
#[test]
fn an_absolute_sleep_ends_at_its_time() {
    let mut guest = Guest::new(&nothing());
    let end = monotonic(&mut guest) + 30 * MILLISECOND;
    let (events, _) = poll(&mut guest, &[timer(1, MONOTONIC, end, true)]);
    assert_eq!(events, [(1, 0, 0)]);
    assert!(monotonic(&mut guest) >= end);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (events, took) = poll(&mut guest, &[timer(2, REALTIME, wall + 30 * MILLISECOND, true)]);
    assert_eq!(events, [(2, 0, 0)]);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// The thread that polls a sleeping guest is free at once; a sleep of a year, or of for ever, ends
/// when its future is dropped, and the store serves the next call.
#[test]
fn a_long_sleep_is_dropped_and_the_store_stays_usable() {
    let mut guest = Guest::new(&nothing());
    for (timeout, absolute) in [(YEAR, false), (u64::MAX, false), (u64::MAX, true)] {
        let call = prepare(&mut guest, &[timer(1, MONOTONIC, timeout, absolute)]);
        let start = Instant::now();
        let ended =
            poll_for(guest.start("poll_oneoff", &call.arguments), Duration::from_millis(20));
        assert!(ended.is_none());
        assert!(start.elapsed() < Duration::from_secs(5));
        let (events, _) = poll(&mut guest, &[timer(9, MONOTONIC, 0, false)]);
        assert_eq!(events, [(9, 0, 0)]);
    }
}

/// A poll of a sleeping guest never waits in the OS.
#[test]
fn polling_a_sleeping_guest_returns_at_once() {
    let mut guest = Guest::new(&nothing());
    let call = prepare(&mut guest, &[timer(1, MONOTONIC, 2000 * MILLISECOND, false)]);
    let mut future = std::pin::pin!(guest.start("poll_oneoff", &call.arguments));
    let start = Instant::now();
    let waker = std::task::Waker::noop();
    assert!(future.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    assert!(start.elapsed() < Duration::from_millis(1000), "{:?}", start.elapsed());
}

/// All timers that are due are reported, and only those.
#[test]
fn the_earliest_of_many_timers_ends_the_wait() {
    let mut guest = Guest::new(&nothing());
    let late = (0..1000).map(|n| timer(n, MONOTONIC, YEAR + n, false));
    let early = [timer(5000, MONOTONIC, MILLISECOND, false), timer(5001, MONOTONIC, 1, false)];
    let list: Vec<_> = late.chain(early).collect();
    let (events, took) = poll(&mut guest, &list);
    assert!(events.contains(&(5001, 0, 0)), "{events:?}");
    assert!(events.iter().all(|event| event.0 >= 5000), "{events:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// None and too many subscriptions are refused; the greatest number is served.
#[test]
fn the_number_of_subscriptions_is_bounded() {
    let mut guest = Guest::new(&nothing());
    let list: Vec<_> = (0..1025).map(|n| timer(n, MONOTONIC, 0, false)).collect();
    let call = prepare(&mut guest, &list);
    let mut arguments = call.arguments;
    for (n, errno) in [(0, INVAL), (1024, SUCCESS), (1025, INVAL), (-1, INVAL)] {
        arguments[2] = i(n);
        assert_eq!(guest.call("poll_oneoff", &arguments), errno, "{n}");
    }
    assert_eq!(events(&guest, &call).len(), 1024);
}

/// `monotonic` leaks no wall time through a deadline: it is answered at once with errno 76. A
/// relative sleep tells no time and is served, as libc's `sleep` counts on the wall clock.
#[test]
fn a_refused_clock_is_an_event_with_an_errno() {
    let mut guest = Guest::new(&WasiOptions { clocks: Clocks::Monotonic, ..nothing() });
    let refused =
        |id, absolute| timer(u64::from(id), id, if absolute { 1 } else { YEAR }, absolute);
    let list = [refused(0, true), refused(2, false), refused(3, true), refused(9, false)];
    let (events, took) = poll(&mut guest, &list);
    assert_eq!(events, [(0, 76, 0), (2, 76, 0), (3, 76, 0), (9, 76, 0)]);
    assert!(took < Duration::from_secs(5));
    let (events, _) = poll(&mut guest, &[timer(1, REALTIME, 1, false)]);
    assert_eq!(events, [(1, 0, 0)]);
}

/// A clock that does not exist is refused as an event too.
#[test]
fn an_unknown_clock_is_an_event_with_an_errno() {
    let (events, _) = poll(&mut Guest::new(&nothing()), &[timer(1, 9, YEAR, false)]);
    assert_eq!(events, [(1, INVAL as u16, 0)]);
}

/// Streams and files are ready; a descriptor that is not open, or is none to be read, says so.
#[test]
fn descriptors_are_ready_or_answer_an_errno() {
    let stdout = Output::Capture;
    let stdin = Stdin::Binary(b"x".as_slice().into());
    let mut guest = Guest::new(&WasiOptions { stdin, stdout, ..nothing() });
    let long = timer(0, MONOTONIC, YEAR, false);
    let list = [long, ready(1, 1, 0), ready(2, 2, 1), ready(3, 1, 1), ready(4, 2, 99)];
    let (events, _) = poll(&mut guest, &list);
    assert_eq!(events, [(1, 0, 1), (2, 0, 2), (3, 8, 1), (4, 8, 2)]);
}

/// A subscription of a kind that does not exist is refused.
#[test]
fn an_unknown_subscription_is_an_event_with_an_errno() {
    let (events, _) = poll(&mut Guest::new(&nothing()), &[ready(1, 7, 0)]);
    assert_eq!(events, [(1, INVAL as u16, 7)]);
}

/// Ranges outside of the memory trap, as those of every other import do.
#[test]
fn ranges_outside_of_the_memory_trap() {
    let mut guest = Guest::new(&nothing());
    let call = prepare(&mut guest, &[timer(1, MONOTONIC, 0, false)]);
    for bad in [0, 1, 3] {
        let mut arguments = call.arguments;
        arguments[bad] = i(-16);
        assert!(guest.try_call("poll_oneoff", &arguments).is_err(), "argument {bad}");
    }
}

/// The older interface has one more field before the clock.
#[test]
fn the_unstable_interface_sleeps_too() {
    let mut guest = Guest::unstable(&nothing());
    let mut subscription = timer(3, MONOTONIC, 20 * MILLISECOND, false);
    subscription.splice(16..16, [0; 8]);
    let (events, took) = poll(&mut guest, &[subscription]);
    assert_eq!(events, [(3, 0, 0)]);
    assert!(took >= Duration::from_millis(20) && took < Duration::from_secs(5), "{took:?}");
}
