//! `poll_oneoff` as an await: the earliest deadline on one timer of the process-wide runtime, and
//! readiness of stdin. However many subscriptions a guest makes, it holds one timer.

use super::clocks::{MONOTONIC, REALTIME, monotonic_now, realtime_now};
use super::linker::NOTCAPABLE;
use super::{Input, Wasi};
use crate::options::Clocks;
use crate::reactor;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use wasmtime::Result;
use wasmtime_wasi::cli::StdinStream;
use wasmtime_wasi::p1::types::{self, Filetype, Rights};
use wasmtime_wasi::p1::wasi_snapshot_preview1::WasiSnapshotPreview1;
use wiggle::{GuestMemory, GuestPtr};

/// Subscriptions in one call; more is errno 28 (inval), as `poll` answers beyond the limit of files.
pub(super) const MAX_SUBSCRIPTIONS: u32 = 1024;

const SUCCESS: u16 = 0;
const BADF: u16 = 8;
const INVAL: u16 = 28;
const EVENT_SIZE: u32 = 32;

/// How a subscription lies in memory; events are the same in both.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    Preview1,
    /// Preview 0 has one more field at the start of a clock.
    Unstable,
}

impl Layout {
    fn size(self) -> u32 {
        match self {
            Layout::Preview1 => 48,
            Layout::Unstable => 56,
        }
    }

    fn clock(self) -> usize {
        match self {
            Layout::Preview1 => 16,
            Layout::Unstable => 24,
        }
    }
}

/// What a subscription asks for.
enum Wanted {
    Clock { id: u32, timeout: u64, absolute: bool },
    Read(u32),
    Write(u32),
    Unknown,
}

/// When it is answered.
#[derive(Clone, Copy)]
enum Due {
    /// Now, with this errno.
    Now(u16),
    /// When the monotonic clock shows this.
    At(u64),
    /// When stdin can be read.
    Stdin,
}

struct Subscription {
    userdata: [u8; 8],
    /// 0 clock, 1 read, 2 write.
    tag: u8,
    due: Due,
}

/// Waits until at least one of the subscriptions is due and writes an event for each that is.
///
/// A clock that the options refuse is answered at once with errno 76; a relative timer on the wall
/// clock is not refused, since it tells no time. Timers fire within 1 ms after their deadline.
///
/// # Errors
/// Traps when a range lies outside of the memory.
pub(super) async fn poll_oneoff(
    memory: &mut GuestMemory<'_>,
    wasi: &mut Wasi,
    layout: Layout,
    clocks: Clocks,
    [subscriptions, events, n, out]: [u32; 4],
) -> Result<i32> {
    if n == 0 || n > MAX_SUBSCRIPTIONS {
        return Ok(INVAL.into());
    }
    let bytes = memory.to_vec(GuestPtr::new((subscriptions, n * layout.size())))?;
    let mut list = Vec::with_capacity(n as usize);
    for bytes in bytes.chunks_exact(layout.size() as usize) {
        list.push(subscription(memory, wasi, layout, clocks, bytes).await?);
    }
    let reached = wait(&wasi.stdin, &list).await?;
    let events_written = write_events(memory, &list, &reached, events)?;
    memory.copy_from_slice(&events_written.to_le_bytes(), GuestPtr::new((out, 4)))?;
    Ok(SUCCESS.into())
}

async fn subscription(
    memory: &mut GuestMemory<'_>,
    wasi: &mut Wasi,
    layout: Layout,
    clocks: Clocks,
    bytes: &[u8],
) -> Result<Subscription> {
    let due = match wanted(layout, bytes) {
        Wanted::Clock { id, timeout, absolute } => clock_due(clocks, id, timeout, absolute),
        Wanted::Read(fd) => read_due(memory, wasi, fd).await?,
        Wanted::Write(fd) => write_due(memory, wasi, fd).await?,
        Wanted::Unknown => Due::Now(INVAL),
    };
    Ok(Subscription { userdata: array(bytes, 0), tag: bytes[8], due })
}

fn wanted(layout: Layout, bytes: &[u8]) -> Wanted {
    let clock = layout.clock();
    match bytes[8] {
        0 => Wanted::Clock {
            id: u32::from_le_bytes(array(bytes, clock)),
            timeout: u64::from_le_bytes(array(bytes, clock + 8)),
            absolute: bytes[clock + 24] & 1 != 0,
        },
        1 => Wanted::Read(u32::from_le_bytes(array(bytes, 16))),
        2 => Wanted::Write(u32::from_le_bytes(array(bytes, 16))),
        _ => Wanted::Unknown,
    }
}

fn clock_due(clocks: Clocks, id: u32, timeout: u64, absolute: bool) -> Due {
    match (id, absolute) {
        (MONOTONIC, true) => Due::At(timeout),
        (MONOTONIC | REALTIME, false) => Due::At(monotonic_now().saturating_add(timeout)),
        _ if clocks == Clocks::Monotonic => Due::Now(NOTCAPABLE as u16),
        (REALTIME, true) => {
            let left = timeout.saturating_sub(realtime_now());
            Due::At(monotonic_now().saturating_add(left))
        }
        _ => Due::Now(INVAL),
    }
}

/// Files are always ready, as they are for `poll`.
async fn read_due(memory: &mut GuestMemory<'_>, wasi: &mut Wasi, fd: u32) -> Result<Due> {
    Ok(match stat(memory, wasi, fd).await? {
        Ok(stat) if stat.fs_rights_base == Rights::FD_READ => Due::Stdin,
        Ok(stat) if stat.fs_rights_base.contains(Rights::FD_READ) && is_file(&stat) => {
            Due::Now(SUCCESS)
        }
        Ok(_) => Due::Now(BADF),
        Err(errno) => Due::Now(errno),
    })
}

/// So is output: a write waits by itself when its target is not.
async fn write_due(memory: &mut GuestMemory<'_>, wasi: &mut Wasi, fd: u32) -> Result<Due> {
    Ok(match stat(memory, wasi, fd).await? {
        Ok(stat) if stat.fs_rights_base == Rights::FD_WRITE => Due::Now(SUCCESS),
        Ok(stat) if stat.fs_rights_base.contains(Rights::FD_WRITE) && is_file(&stat) => {
            Due::Now(SUCCESS)
        }
        Ok(_) => Due::Now(BADF),
        Err(errno) => Due::Now(errno),
    })
}

fn is_file(stat: &types::Fdstat) -> bool {
    stat.fs_filetype != Filetype::Directory
}

/// wasmtime-wasi keeps its table of descriptors to itself; the standard streams, wherever the guest
/// has moved them, are those with exactly one right.
async fn stat(
    memory: &mut GuestMemory<'_>,
    wasi: &mut Wasi,
    fd: u32,
) -> Result<std::result::Result<types::Fdstat, u16>> {
    match wasi.p1.fd_fdstat_get(memory, fd.into()).await {
        Ok(stat) => Ok(Ok(stat)),
        Err(error) => Ok(Err(error.downcast()? as u16)),
    }
}

/// What the wait reached.
struct Reached {
    time: u64,
    stdin: bool,
}

async fn wait(stdin: &Input, list: &[Subscription]) -> Result<Reached> {
    let now = monotonic_now();
    let deadline = list.iter().filter_map(|subscription| match subscription.due {
        Due::At(time) => Some(time),
        Due::Now(_) | Due::Stdin => None,
    });
    let deadline = deadline.min();
    let wants_stdin = list.iter().any(|subscription| matches!(subscription.due, Due::Stdin));
    let is_due = list.iter().any(|subscription| matches!(subscription.due, Due::Now(_)))
        || deadline.is_some_and(|time| time <= now);
    // Something is due: stdin is looked at without waiting.
    let timer = if is_due { Timer::Past } else { Timer::new(deadline, now)? };
    let stdin_ready = first_ready(wants_stdin.then_some(stdin), timer).await;
    let time = monotonic_now();
    // The timer's clock may stand a little behind the one that is compared here.
    let time = if is_due || stdin_ready { time } else { time.max(deadline.unwrap_or(time)) };
    Ok(Reached { time, stdin: stdin_ready })
}

enum Timer {
    Past,
    Never,
    Running(Sleep),
}

impl Timer {
    /// A deadline that no clock of the host reaches is none.
    fn new(deadline: Option<u64>, now: u64) -> Result<Self> {
        let left = deadline.map(|time| Duration::from_nanos(time.saturating_sub(now)));
        match left.and_then(|left| Instant::now().checked_add(left)) {
            Some(deadline) => {
                let _runtime = reactor::enter()?;
                Ok(Timer::Running(sleep_until(deadline)))
            }
            None => Ok(Timer::Never),
        }
    }
}

/// True when stdin was ready, false when the timer fired before it.
async fn first_ready(stdin: Option<&Input>, timer: Timer) -> bool {
    let mut stdin = stdin.map(StdinStream::p2_stream);
    let mut stdin = pin!(async {
        match &mut stdin {
            Some(stdin) => stdin.ready().await,
            None => std::future::pending().await,
        }
    });
    let mut timer = pin!(async {
        match timer {
            Timer::Past => {}
            Timer::Never => std::future::pending().await,
            Timer::Running(sleep) => sleep.await,
        }
    });
    poll_fn(|cx| {
        if stdin.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        timer.as_mut().poll(cx).map(|()| false)
    })
    .await
}

fn write_events(
    memory: &mut GuestMemory<'_>,
    list: &[Subscription],
    reached: &Reached,
    events: u32,
) -> Result<u32> {
    let mut bytes = Vec::with_capacity(list.len() * EVENT_SIZE as usize);
    for subscription in list {
        let errno = match subscription.due {
            Due::Now(errno) => errno,
            Due::At(time) if time <= reached.time => SUCCESS,
            Due::Stdin if reached.stdin => SUCCESS,
            Due::At(_) | Due::Stdin => continue,
        };
        bytes.extend_from_slice(&event(subscription, errno));
    }
    memory.copy_from_slice(&bytes, GuestPtr::new((events, bytes.len() as u32)))?;
    Ok(bytes.len() as u32 / EVENT_SIZE)
}

fn event(subscription: &Subscription, errno: u16) -> [u8; EVENT_SIZE as usize] {
    let mut event = [0; EVENT_SIZE as usize];
    event[..8].copy_from_slice(&subscription.userdata);
    event[8..10].copy_from_slice(&errno.to_le_bytes());
    event[10] = subscription.tag;
    // How much can be read or written is not known; at least one byte.
    event[16] = u8::from(subscription.tag != 0 && errno == SUCCESS);
    event
}

/// The callers' offsets lie inside of a subscription.
fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[offset..offset + N]);
    array
}
