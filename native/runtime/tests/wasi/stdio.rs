//! Standard streams: each kind of source and target, and those that are refused.

use crate::guest::{Guest, SUCCESS, Scratch, i, nothing};
use std::path::PathBuf;
use wasmtime_beam::options::{Clocks, Output, Stdin, WasiOptions};
use wasmtime_beam::wasi::{CapturedOutput, Wasi, WasiTemplate};
use wasmtime_beam::{Class, Kind};

fn stdin(stdin: Stdin) -> WasiOptions {
    WasiOptions { stdin, ..nothing() }
}

fn capture(output_limit: u64) -> WasiOptions {
    let stdout = Output::Capture;
    WasiOptions { stdout: stdout.clone(), stderr: stdout, output_limit, ..nothing() }
}

/// Nothing is granted: stdin is at its end, output is accepted and kept nowhere.
#[test]
fn without_streams_a_guest_reads_nothing_and_writes_into_the_void() {
    let mut guest = Guest::new(&nothing());
    assert_eq!(guest.read(0, 10), Ok(vec![]));
    assert_eq!(guest.read(0, 10), Ok(vec![]));
    assert_eq!((guest.write(1, b"out"), guest.write(2, b"err")), (SUCCESS, SUCCESS));
    assert_eq!(guest.store.data().captured().take(), CapturedOutput::default());
}

/// Every instance reads the bytes from their start.
#[test]
fn stdin_of_bytes_is_read_in_pieces_by_each_instance() {
    let template = WasiTemplate::new(&stdin(Stdin::Binary(b"hello".as_slice().into()))).unwrap();
    let (mut one, mut two) = (Guest::from_template(&template), Guest::from_template(&template));
    assert_eq!(one.read(0, 3), Ok(b"hel".to_vec()));
    assert_eq!(two.read(0, 9), Ok(b"hello".to_vec()));
    assert_eq!(one.read(0, 9), Ok(b"lo".to_vec()));
    assert_eq!(one.read(0, 9), Ok(vec![]));
}

/// A file is opened for each instance, so that each reads it from its start.
#[test]
fn stdin_of_a_file_is_read_by_each_instance() {
    let scratch = Scratch::new();
    let file = scratch.file("input", "one two");
    let template = WasiTemplate::new(&stdin(Stdin::File(file))).unwrap();
    let mut one = Guest::from_template(&template);
    assert_eq!(one.read(0, 4), Ok(b"one ".to_vec()));
    let mut two = Guest::from_template(&template);
    assert_eq!(two.read(0, 9), Ok(b"one two".to_vec()));
    assert_eq!(one.read(0, 9), Ok(b"two".to_vec()));
    assert_eq!(one.read(0, 9), Ok(vec![]));
}

/// Captured output is kept per stream, and a take empties it.
#[test]
fn captured_output_is_taken_once() {
    let mut guest = Guest::new(&capture(100));
    let captured = guest.store.data().captured().clone();
    assert_eq!((guest.write(1, b"out"), guest.write(2, b"err")), (SUCCESS, SUCCESS));
    let first = captured.take();
    assert_eq!(
        (&first.stdout[..], &first.stderr[..], first.dropped),
        (&b"out"[..], &b"err"[..], (0, 0))
    );
    assert_eq!(guest.write(1, b"more"), SUCCESS);
    drop(guest);
    assert_eq!(captured.take().stdout, b"more");
    assert_eq!(captured.take(), CapturedOutput::default());
}

/// At the limit nothing is dropped; beyond it the guest still sees whole writes, and the excess of
/// each stream is counted.
#[test]
fn captured_output_beyond_the_limit_is_counted() {
    let mut guest = Guest::new(&capture(10));
    assert_eq!(guest.write(1, b"0123456789"), SUCCESS);
    assert_eq!(guest.write(2, b"0123456"), SUCCESS);
    let place = guest.put(b"abcdef");
    let (iovec, written) = (guest.iovec(place, 6), guest.room(4));
    assert_eq!(guest.call("fd_write", &[i(2), i(iovec), i(1), i(written)]), SUCCESS);
    assert_eq!(guest.get_u32(written), 6);
    let taken = guest.store.data().captured().take();
    assert_eq!((taken.stdout, taken.stderr), (b"0123456789".to_vec(), b"0123456abc".to_vec()));
    assert_eq!(taken.dropped, (0, 3));
    assert_eq!(guest.write(1, &[b'x'; 11]), SUCCESS);
    let taken = guest.store.data().captured().take();
    assert_eq!((taken.stdout.len(), taken.dropped), (10, (1, 0)));
}

/// A limit of zero keeps nothing and counts all.
#[test]
fn a_limit_of_zero_counts_everything() {
    let mut guest = Guest::new(&capture(0));
    assert_eq!(guest.write(2, b"abc"), SUCCESS);
    let expected = CapturedOutput { dropped: (0, 3), ..CapturedOutput::default() };
    assert_eq!(guest.store.data().captured().take(), expected);
}

/// A file for output is created, and emptied when it exists.
#[test]
fn output_files_are_created_and_emptied() {
    let scratch = Scratch::new();
    let (new, old) = (scratch.0.join("new"), scratch.file("old", "something longer"));
    let options = WasiOptions {
        stdout: Output::File(new.clone()),
        stderr: Output::File(old.clone()),
        ..nothing()
    };
    let mut guest = Guest::new(&options);
    assert_eq!((guest.write(1, b"out"), guest.write(2, b"err")), (SUCCESS, SUCCESS));
    assert_eq!(guest.write(1, b" and out"), SUCCESS);
    assert_eq!(std::fs::read_to_string(new).unwrap(), "out and out");
    assert_eq!(std::fs::read_to_string(old).unwrap(), "err");
}

/// Both streams can name one file; their writes stand in it in order.
#[test]
fn both_streams_can_share_a_file() {
    let scratch = Scratch::new();
    let log = Output::File(scratch.0.join("log"));
    let mut guest = Guest::new(&WasiOptions { stdout: log.clone(), stderr: log, ..nothing() });
    assert_eq!((guest.write(1, b"1"), guest.write(2, b"2")), (SUCCESS, SUCCESS));
    assert_eq!(guest.write(1, b"3"), SUCCESS);
    assert_eq!(std::fs::read_to_string(scratch.0.join("log")).unwrap(), "123");
}

/// A device that never waits is as good as a file.
#[test]
fn the_null_device_serves_as_a_file() {
    let null = PathBuf::from("/dev/null");
    let options =
        WasiOptions { stdin: Stdin::File(null.clone()), stdout: Output::File(null), ..nothing() };
    let mut guest = Guest::new(&options);
    assert_eq!((guest.read(0, 5), guest.write(1, b"x")), (Ok(vec![]), SUCCESS));
}

/// What cannot be opened, or could wait for ever, is refused by the key of its option.
#[test]
fn streams_that_cannot_be_opened_are_refused() {
    let scratch = Scratch::new();
    let bad = [scratch.0.join("no/file"), scratch.fifo("fifo"), scratch.dir("dir"), "a\0b".into()];
    for path in bad {
        let output = Output::File(path.clone());
        let cases = [
            ("stdin", stdin(Stdin::File(path.clone()))),
            ("stdout", WasiOptions { stdout: output.clone(), ..nothing() }),
            ("stderr", WasiOptions { stderr: output, ..nothing() }),
        ];
        for (key, options) in cases {
            let error = Wasi::new(&options).err().unwrap();
            assert_eq!((error.class, error.kind), (Class::Instantiate, Kind::Badarg), "{error}");
            assert_eq!(error.key, Some(key), "{error}");
        }
    }
}

/// The message names the path and what the OS said.
#[test]
fn a_refused_stream_is_named_with_its_reason() {
    let error = Wasi::new(&stdin(Stdin::File("/no/such/file".into()))).err().unwrap();
    assert!(error.message.contains("/no/such/file"), "{error}");
    assert!(error.message.contains("No such file"), "{error}");
}

/// stdin can be read in one direction only, and so can output be written.
#[test]
fn streams_have_one_direction() {
    let mut guest = Guest::with(Wasi::new(&capture(9)).unwrap(), Clocks::All);
    let badf = 8;
    assert_eq!(guest.write(0, b"x"), badf);
    assert_eq!(guest.read(1, 1), Err(badf));
}
