//! FIFOs in granted folders, which are not opened.

use crate::dirs::{Pair, grant};
use crate::guest::{Guest, SUCCESS, Scratch, dir, i};
use std::fs;
use wasmtime_beam::wasi::WasiTemplate;

const NOENT: i32 = 44;
const NOTDIR: i32 = 54;
const NOTSUP: i32 = 58;
const PERM: i32 = 63;
const DIRECTORY: i32 = 2;
const FD_READ: i64 = 2;
const FD_WRITE: i64 = 64;

/// A FIFO would hold the thread until somebody opens its other end; it is refused, in either
/// direction, directly and through a link.
#[test]
fn a_fifo_is_not_opened() {
    let mut pair = Pair::new();
    let fifo = pair.scratch.fifo("write/fifo");
    std::os::unix::fs::symlink(fifo.file_name().unwrap(), pair.write.join("link")).unwrap();
    for path in ["fifo", "link"] {
        for rights in [FD_READ, FD_WRITE] {
            assert_eq!(pair.guest.open(4, path, 0, rights), Err(NOTSUP), "{path}");
            assert_eq!(pair.guest.open(4, path, DIRECTORY, rights), Err(NOTSUP), "{path}");
        }
    }
}

/// Whatever way leads there: through dots and folders, through a folder that the guest opened, and
/// through the number of a preopen that stands for another folder since. Only what leads out of the
/// granted folder is told apart: as for any file, and a FIFO there is not even seen.
#[test]
fn a_fifo_is_not_opened_on_any_way() {
    let mut pair = Pair::new();
    pair.scratch.fifo("write/fifo");
    fs::create_dir(pair.write.join("deep")).unwrap();
    pair.scratch.fifo("write/deep/fifo");
    pair.scratch.fifo("outside");
    std::os::unix::fs::symlink("../outside", pair.write.join("out")).unwrap();
    std::os::unix::fs::symlink("deep", pair.write.join("link")).unwrap();
    for path in ["./fifo", "deep/../fifo", "deep/fifo", "link/fifo", "fifo/", "fifo/."] {
        let opened = pair.guest.open(4, path, 0, FD_READ);
        // ENOTDIR for a file that is taken for a folder.
        assert!(matches!(opened, Err(NOTSUP | NOTDIR)), "{path}: {opened:?}");
    }
    for path in ["out", "../outside", "deep/../../outside"] {
        assert_eq!(pair.guest.open(4, path, 0, FD_READ), Err(PERM), "{path}");
    }
    assert_eq!(pair.guest.open(4, "/fifo", 0, FD_READ), Err(PERM));
    assert_eq!(pair.guest.open(4, "none", 0, FD_READ), Err(NOENT));
    let deep = pair.guest.open(4, "deep", DIRECTORY, FD_READ).unwrap();
    assert_eq!(pair.guest.open(deep, "fifo", 0, FD_READ), Err(NOTSUP));
    // 3 is the folder without a FIFO until here.
    assert_eq!(pair.guest.open(3, "fifo", 0, FD_READ), Err(NOENT));
    assert_eq!(pair.guest.call("fd_renumber", &[i(deep), i(3)]), SUCCESS);
    assert_eq!(pair.guest.open(3, "fifo", 0, FD_READ), Err(NOTSUP));

    let mut pair = Pair::new();
    fs::create_dir(pair.write.join("deep")).unwrap();
    pair.scratch.fifo("write/deep/fifo");
    assert_eq!(pair.guest.call("fd_close", &[i(3)]), SUCCESS);
    assert_eq!(pair.guest.open(4, "deep", DIRECTORY, FD_READ), Ok(3));
    assert_eq!(pair.guest.open(3, "fifo", 0, FD_READ), Err(NOTSUP));
}

/// A folder that was replaced on the host is looked at where its files are opened.
#[test]
fn a_fifo_of_a_replaced_folder_is_not_opened() {
    let scratch = Scratch::new();
    let folder = scratch.dir("folder");
    let template = WasiTemplate::new(&grant(vec![dir("/", &folder, false)])).unwrap();
    assert_eq!(Guest::from_template(&template).open(3, "fifo", 0, FD_READ), Err(NOENT));
    fs::rename(&folder, scratch.0.join("old")).unwrap();
    scratch.dir("folder");
    scratch.fifo("folder/fifo");
    assert_eq!(Guest::from_template(&template).open(3, "fifo", 0, FD_READ), Err(NOTSUP));
}
