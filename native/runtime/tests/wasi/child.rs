//! The streams of the process itself, in a child process whose ends the test holds.

use crate::guest::{Guest, SUCCESS, block_on, i, nothing, poll_for};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wasmtime_beam::options::{Output, Stdin, WasiOptions};

const MIB: usize = 1 << 20;

/// Runs one of the ignored tests below in a process of its own; it reports on stderr.
fn spawn(test: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("child::{test}"), "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for(child: &mut Child, mark: &str) {
    let mut seen = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    while !seen.contains(mark) {
        let mut bytes = [0; 256];
        let size = stderr.read(&mut bytes).unwrap();
        assert!(size > 0, "the child ended after {seen:?}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..size]));
    }
}

/// A guest waits for a stdin that is silent without holding its thread; dropping the call loses
/// nothing: the next read gets what arrives.
#[test]
fn a_silent_stdin_can_be_left_and_read_later() {
    let mut child = spawn("child_reads_stdin");
    wait_for(&mut child, "<cancelled>");
    child.stdin.as_mut().unwrap().write_all(b"late").unwrap();
    wait_for(&mut child, "<late>");
    drop(child.stdin.take());
    wait_for(&mut child, "<end>");
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "run by the test above"]
fn child_reads_stdin() {
    let mut guest = Guest::new(&WasiOptions { stdin: Stdin::Inherit, ..nothing() });
    let (place, read) = (guest.room(64), guest.room(4));
    let iovec = guest.iovec(place, 64);
    let arguments = [i(0), i(iovec), i(1), i(read)];
    let start = Instant::now();
    assert!(poll_for(guest.start("fd_read", &arguments), Duration::from_millis(50)).is_none());
    assert!(start.elapsed() < Duration::from_secs(10));
    eprint!("<cancelled>");
    let bytes = guest.read(0, 64).unwrap();
    eprint!("<{}>", String::from_utf8(bytes).unwrap());
    assert_eq!(guest.read(0, 64), Ok(vec![]));
    eprint!("<end>");
}

/// A guest that writes to a pipe which nobody reads waits without holding its thread; dropping the
/// call leaves the store usable, and all that was accepted arrives.
#[test]
fn a_stalled_stdout_does_not_hold_the_thread() {
    let mut child = spawn("child_writes_stdout");
    wait_for(&mut child, "<cancelled>");
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![];
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    wait_for(&mut child, "<end>");
    assert!(child.wait().unwrap().success());
    let bytes = reader.join().unwrap().unwrap();
    let count = |byte| bytes.iter().filter(|&&each| each == byte).count();
    assert!(count(0xee) >= 4096, "{}", count(0xee));
    assert_eq!(count(0xff), MIB);
}

#[test]
#[ignore = "run by the test above"]
fn child_writes_stdout() {
    let mut guest = Guest::new(&WasiOptions { stdout: Output::Inherit, ..nothing() });
    let (place, written) = (guest.put(&vec![0xee; MIB]), guest.room(4));
    let iovec = guest.iovec(place, MIB);
    let arguments = [i(1), i(iovec), i(1), i(written)];
    let start = Instant::now();
    assert!(poll_for(guest.start("fd_write", &arguments), Duration::from_millis(100)).is_none());
    assert!(start.elapsed() < Duration::from_secs(10));
    let sleep = guest.put(&[0; 48]);
    let events = guest.room(36);
    let arguments = [i(sleep), i(events), i(1), i(events + 32)];
    assert_eq!(guest.call("poll_oneoff", &arguments), SUCCESS);
    eprint!("<cancelled>");
    let place = guest.put(&vec![0xff; MIB]);
    let iovec = guest.iovec(place, MIB);
    let arguments = [i(1), i(iovec), i(1), i(written)];
    assert_eq!(block_on(guest.start("fd_write", &arguments)).unwrap(), SUCCESS);
    assert_eq!(guest.get_u32(written) as usize, MIB);
    eprint!("<end>");
}
