//! Preopened directories: what `read` refuses, what `write` allows, what instances share.

use crate::guest::{Guest, SUCCESS, Scratch, dir, i, l, nothing};
use std::fs;
use std::path::PathBuf;
use wasmtime::Val;
use wasmtime_beam::options::{Dir, WasiOptions};
use wasmtime_beam::stream::Ends;
use wasmtime_beam::wasi::{MAX_OPEN_FILES, WasiTemplate};
use wasmtime_beam::{Class, Kind};

const BADF: i32 = 8;
const MFILE: i32 = 33;
const NOTSUP: i32 = 58;
const PERM: i32 = 63;
const CREAT: i32 = 1;
const DIRECTORY: i32 = 2;
const EXCL: i32 = 4;
const TRUNC: i32 = 8;
const FD_READ: i64 = 2;
const FD_WRITE: i64 = 64;
/// A right that opens a file for neither reading nor writing.
const FD_SEEK: i64 = 4;

pub fn grant(dirs: Vec<Dir>) -> WasiOptions {
    WasiOptions { dirs, ..nothing() }
}

/// A directory to be read (descriptor 3) with a file, a subdirectory and a link, and one to be
/// written (descriptor 4).
pub struct Pair {
    pub scratch: Scratch,
    read: PathBuf,
    pub write: PathBuf,
    pub guest: Guest,
}

impl Pair {
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let (read, write) = (scratch.dir("read"), scratch.dir("write"));
        fs::write(read.join("file"), "contents").unwrap();
        fs::create_dir(read.join("sub")).unwrap();
        fs::write(write.join("other"), "mine").unwrap();
        let guest = Guest::new(&grant(vec![dir("/r", &read, false), dir("/w", &write, true)]));
        Pair { scratch, read, write, guest }
    }

    /// All that lies in the directory to be read: names, contents, times.
    fn snapshot(&self) -> Vec<(String, Vec<u8>, std::time::SystemTime)> {
        let mut entries: Vec<_> = fs::read_dir(&self.read)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                let contents = fs::read(entry.path()).unwrap_or_default();
                (name, contents, entry.metadata().unwrap().modified().unwrap())
            })
            .collect();
        entries.sort();
        entries
    }

    fn two(&mut self, name: &str, from: (i32, &str), to: (i32, &str)) -> i32 {
        let ([from_place, from_size], [to_place, to_size]) =
            (self.guest.path(from.1), self.guest.path(to.1));
        let mut arguments = vec![i(from.0), from_place, from_size, i(to.0), to_place, to_size];
        if name == "path_link" {
            arguments.insert(1, i(0));
        }
        self.guest.call(name, &arguments)
    }

    fn symlink(&mut self, target: &str, fd: i32, path: &str) -> i32 {
        let ([a, b], [c, d]) = (self.guest.path(target), self.guest.path(path));
        self.guest.call("path_symlink", &[a, b, i(fd), c, d])
    }

    fn one(&mut self, name: &str, fd: i32, path: &str) -> i32 {
        let [place, size] = self.guest.path(path);
        self.guest.call(name, &[i(fd), place, size])
    }

    fn set_times(&mut self, fd: i32, path: &str) -> i32 {
        let [place, size] = self.guest.path(path);
        let arguments = [i(fd), i(0), place, size, l(1), l(1), i(5)];
        self.guest.call("path_filestat_set_times", &arguments)
    }
}

/// What is granted for reading can be read and listed.
#[test]
fn a_read_directory_can_be_read() {
    let mut pair = Pair::new();
    let fd = pair.guest.open(3, "file", 0, FD_READ).unwrap();
    assert_eq!(pair.guest.read(fd, 100), Ok(b"contents".to_vec()));
    assert!(pair.guest.open(3, "sub", DIRECTORY, FD_READ).is_ok());
}

/// No way of opening creates, truncates or opens for writing.
#[test]
fn a_read_directory_refuses_to_open_for_changes() {
    let mut pair = Pair::new();
    let before = pair.snapshot();
    let cases = [
        ("new", CREAT, FD_READ),
        ("new", CREAT | EXCL, FD_READ | FD_WRITE),
        ("file", CREAT, FD_READ),
        ("file", TRUNC, FD_READ),
        ("file", TRUNC | CREAT, FD_WRITE),
        ("file", 0, FD_WRITE),
        ("file", 0, FD_READ | FD_WRITE),
        ("sub/new", CREAT, FD_WRITE),
    ];
    for (path, oflags, rights) in cases {
        assert_eq!(pair.guest.open(3, path, oflags, rights), Err(PERM), "{path} {oflags} {rights}");
    }
    assert_eq!(pair.snapshot(), before);
}

/// Every call that changes a name or a time in it is refused.
#[test]
fn a_read_directory_refuses_changes_by_path() {
    let mut pair = Pair::new();
    let before = pair.snapshot();
    let results = [
        ("mkdir", pair.one("path_create_directory", 3, "new")),
        ("rmdir", pair.one("path_remove_directory", 3, "sub")),
        ("unlink", pair.one("path_unlink_file", 3, "file")),
        ("symlink", pair.symlink("file", 3, "link")),
        ("link", pair.two("path_link", (3, "file"), (3, "hard"))),
        ("rename", pair.two("path_rename", (3, "file"), (3, "renamed"))),
        ("set times", pair.set_times(3, "file")),
        ("set times of itself", pair.set_times(3, ".")),
    ];
    for (name, errno) in results {
        assert_eq!(errno, PERM, "{name}");
    }
    assert_eq!(pair.snapshot(), before);
}

/// A directory that can be written is no way around: a hard link in it would open the file for
/// writing, and a rename would take it away.
#[test]
fn a_read_directory_refuses_links_and_renames_across() {
    let mut pair = Pair::new();
    let before = pair.snapshot();
    for (from, to) in [((3, "file"), (4, "stolen")), ((4, "other"), (3, "planted"))] {
        assert_eq!(pair.two("path_link", from, to), PERM);
        assert_eq!(pair.two("path_rename", from, to), PERM);
    }
    assert_eq!(pair.snapshot(), before);
    assert_eq!(fs::read_dir(&pair.write).unwrap().count(), 1);
}

/// Neither a descriptor of a file nor one of a subdirectory has more rights than its directory.
#[test]
fn a_read_directory_refuses_changes_through_descriptors() {
    let mut pair = Pair::new();
    let before = pair.snapshot();
    let sub = pair.guest.open(3, "sub", DIRECTORY, FD_READ).unwrap();
    assert_eq!(pair.guest.open(sub, "new", CREAT, FD_WRITE), Err(PERM));
    assert_eq!(pair.one("path_create_directory", sub, "new"), PERM);
    for rights in [FD_READ, FD_SEEK] {
        let fd = pair.guest.open(3, "file", 0, rights).unwrap();
        assert_ne!(pair.guest.write(fd, b"x"), SUCCESS);
        assert_eq!(pair.guest.call("fd_fdstat_set_flags", &[i(fd), i(1)]), SUCCESS);
        assert_eq!(pair.guest.write(fd, b"appended"), BADF);
        let iovec = pair.guest.iovec(1024, 4);
        let written = pair.guest.room(4);
        let arguments = [i(fd), i(iovec), i(1), l(0), i(written)];
        assert_eq!(pair.guest.call("fd_pwrite", &arguments), BADF);
        assert_eq!(pair.guest.call("fd_filestat_set_size", &[i(fd), l(0)]), PERM);
        let times = [i(fd), l(1), l(1), i(5)];
        assert_eq!(pair.guest.call("fd_filestat_set_times", &times), PERM);
        assert_eq!(pair.guest.call("fd_allocate", &[i(fd), l(0), l(99)]), NOTSUP);
        let rights = [i(fd), Val::I64((1 << 30) - 1), Val::I64(0)];
        assert_eq!(pair.guest.call("fd_fdstat_set_rights", &rights), NOTSUP);
    }
    let times = [i(3), l(1), l(1), i(5)];
    assert_eq!(pair.guest.call("fd_filestat_set_times", &times), PERM);
    assert_eq!(pair.snapshot(), before);
}

/// A write directory allows what a read directory refuses.
#[test]
fn a_write_directory_can_be_changed() {
    let mut pair = Pair::new();
    let fd = pair.guest.open(4, "new", CREAT, FD_READ | FD_WRITE).unwrap();
    assert_eq!(pair.guest.write(fd, b"12345"), SUCCESS);
    assert_eq!(pair.guest.call("fd_filestat_set_size", &[i(fd), l(3)]), SUCCESS);
    let results = [
        pair.one("path_create_directory", 4, "made"),
        pair.one("path_remove_directory", 4, "made"),
        pair.symlink("new", 4, "link"),
        pair.two("path_link", (4, "new"), (4, "hard")),
        pair.two("path_rename", (4, "new"), (4, "renamed")),
        pair.one("path_unlink_file", 4, "hard"),
        pair.set_times(4, "renamed"),
    ];
    assert_eq!(results, [SUCCESS; 7]);
    assert_eq!(fs::read(pair.write.join("renamed")).unwrap(), b"123");
    let modified = fs::metadata(pair.write.join("renamed")).unwrap().modified().unwrap();
    assert_eq!(modified, std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1));
}

/// No path leads out of a directory: not by dots, from the root, or through links.
#[test]
fn no_path_leads_out() {
    let mut pair = Pair::new();
    let secret = pair.scratch.file("secret", "secret");
    std::os::unix::fs::symlink(&secret, pair.read.join("absolute")).unwrap();
    std::os::unix::fs::symlink("../secret", pair.read.join("relative")).unwrap();
    let absolute = secret.to_str().unwrap().to_owned();
    for path in ["../secret", "sub/../../secret", &absolute, "absolute", "relative", "..", "/"] {
        assert!(pair.guest.open(3, path, 0, FD_READ).is_err(), "{path}");
    }
    // Whether or not such a link can be made, it is not followed.
    pair.symlink("../secret", 4, "out");
    assert!(pair.guest.open(4, "out", 0, FD_READ).is_err());
}

/// Preopens are the descriptors from 3 on, in the order of the option, under the guest's names.
#[test]
fn preopens_have_their_order_and_names() {
    let scratch = Scratch::new();
    let dirs =
        vec![dir("/b", &scratch.0, false), dir("/a", &scratch.0, true), dir(".", &scratch.0, true)];
    let mut guest = Guest::new(&grant(dirs));
    for (fd, expected) in [(3, "/b"), (4, "/a"), (5, ".")] {
        let (stat, name) = (guest.room(8), guest.room(8));
        assert_eq!(guest.call("fd_prestat_get", &[i(fd), i(stat)]), SUCCESS);
        let size = guest.get_u32(stat + 4);
        assert_eq!(guest.call("fd_prestat_dir_name", &[i(fd), i(name), i(size as i32)]), SUCCESS);
        assert_eq!(guest.get(name, size as usize), expected.as_bytes());
    }
    let stat = guest.room(8);
    assert_eq!(guest.call("fd_prestat_get", &[i(6), i(stat)]), BADF);
}

/// The names in a directory, read with a small buffer in many calls.
fn list(guest: &mut Guest, fd: i32) -> Vec<String> {
    let (buffer, used) = (guest.room(64), guest.room(4));
    let (mut names, mut cookie) = (vec![], 0);
    loop {
        let arguments = [i(fd), i(buffer), i(64), l(cookie), i(used)];
        assert_eq!(guest.call("fd_readdir", &arguments), SUCCESS);
        let used = guest.get_u32(used) as usize;
        let bytes = guest.get(buffer, used);
        if used < 24 {
            return names;
        }
        let size = u32::from_le_bytes(bytes[16..20].try_into().unwrap()) as usize;
        names.push(String::from_utf8(bytes[24..24 + size].to_vec()).unwrap());
        cookie = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    }
}

/// Instances of one template share descriptors of directories, and still list them each from the
/// start, in alternation.
#[test]
fn instances_that_share_a_directory_do_not_disturb_one_another() {
    let scratch = Scratch::new();
    for name in ["a", "b", "c"] {
        scratch.file(name, "");
    }
    let template = WasiTemplate::new(&grant(vec![dir("/", &scratch.0, true)])).unwrap();
    let (mut one, mut two) = (Guest::from_template(&template), Guest::from_template(&template));
    for _ in 0..2 {
        for guest in [&mut one, &mut two] {
            let mut names = list(guest, 3);
            names.sort();
            assert_eq!(names, [".", "..", "a", "b", "c"]);
        }
    }
    assert_eq!(one.call("fd_close", &[i(3)]), SUCCESS);
    assert_eq!(list(&mut two, 3).len(), 5);
    assert_eq!(list(&mut Guest::from_template(&template), 3).len(), 5);
}

/// A template follows its path: a directory that the host replaced is the one that is granted.
#[test]
fn a_replaced_directory_is_opened_anew() {
    let scratch = Scratch::new();
    let path = scratch.dir("data");
    let template = WasiTemplate::new(&grant(vec![dir("/", &path, false)])).unwrap();
    fs::write(path.join("old"), "").unwrap();
    assert_eq!(list(&mut Guest::from_template(&template), 3).len(), 3);
    fs::remove_dir_all(&path).unwrap();
    let error = template.instantiate(&Ends::none()).err().unwrap();
    assert_eq!(error.key, Some("dirs"), "{error}");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("new"), "").unwrap();
    assert!(list(&mut Guest::from_template(&template), 3).contains(&"new".to_owned()));
}

/// What is no directory is refused with its path and the reason; so is a NUL in either path.
#[test]
fn directories_that_cannot_be_opened_are_refused() {
    let scratch = Scratch::new();
    let file = scratch.file("file", "");
    let missing = scratch.0.join("missing");
    let cases = [
        (dir("/", &missing, false), "No such file"),
        (dir("/", &file, true), "Not a directory"),
        (dir("/\0", &scratch.0, false), "NUL"),
        (dir("/", &PathBuf::from("/tmp\0/x"), false), "NUL"),
    ];
    for (bad, reason) in cases {
        let good = dir("/", &scratch.0, false);
        let host = bad.host.to_string_lossy().into_owned();
        let error = WasiTemplate::new(&grant(vec![good, bad])).err().unwrap();
        assert_eq!((error.class, error.kind), (Class::Instantiate, Kind::Badarg), "{error}");
        assert_eq!(error.key, Some("dirs"));
        assert!(error.message.contains(reason), "{error}");
        assert!(reason == "NUL" || error.message.contains(&host), "{error}");
    }
}

/// A guest can hold so many files open, then gets an errno; closing one makes room.
#[test]
fn open_files_are_limited() {
    let mut pair = Pair::new();
    let opened: Vec<_> =
        (0..MAX_OPEN_FILES).map(|_| pair.guest.open(3, "file", 0, FD_READ)).collect();
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    assert_eq!(pair.guest.open(3, "file", 0, FD_READ), Err(MFILE));
    assert_eq!(pair.guest.open(3, "sub", DIRECTORY, FD_READ), Err(MFILE));
    assert_eq!(pair.guest.call("fd_close", &[i(opened[0].unwrap())]), SUCCESS);
    assert!(pair.guest.open(3, "file", 0, FD_READ).is_ok());
}

/// The older interface opens files by the same rules.
#[test]
fn the_unstable_interface_opens_files() {
    let scratch = Scratch::new();
    scratch.file("file", "contents");
    let mut guest = Guest::unstable(&grant(vec![dir("/", &scratch.0, false)]));
    let fd = guest.open(3, "file", 0, FD_READ).unwrap();
    assert_eq!(guest.read(fd, 99), Ok(b"contents".to_vec()));
    assert_eq!(guest.open(3, "file", TRUNC, FD_WRITE), Err(PERM));
    assert_eq!(guest.open(3, "missing", 0, FD_READ), Err(44));
}

/// Descriptors can be moved, onto the standard streams too.
#[test]
fn descriptors_can_be_moved() {
    let mut pair = Pair::new();
    let fd = pair.guest.open(4, "log", CREAT, FD_WRITE).unwrap();
    assert_eq!(pair.guest.call("fd_renumber", &[i(fd), i(1)]), SUCCESS);
    assert_eq!(pair.guest.write(1, b"moved"), SUCCESS);
    assert_eq!(fs::read(pair.write.join("log")).unwrap(), b"moved");
}
