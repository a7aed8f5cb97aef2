//! A swap area: the machine's own, else one that is made for as long as a test runs (by root, of a
//! file, else of compressed memory). Rule: what is made goes again, also what a killed test left.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use crate::support::PAGE;

const SIZE: usize = 64 << 20;
const PREFIX: &str = "wasmtime-test-swap-";
const ZRAM: &str = "/sys/class/zram-control";

/// Some swap, on while this lives.
#[derive(Debug)]
pub struct Swap {
    /// What was made.
    made: Option<Made>,
}

#[derive(Debug)]
enum Made {
    File(PathBuf),
    Zram(String),
}

impl Swap {
    /// Shared by the tests of one process; or why there is none.
    pub fn open() -> io::Result<Arc<Swap>> {
        static OPEN: Mutex<Weak<Swap>> = Mutex::new(Weak::new());
        let mut open = OPEN.lock().unwrap();
        if let Some(swap) = open.upgrade() {
            return Ok(swap);
        }
        let swap = Arc::new(Swap { made: made()? });
        *open = Arc::downgrade(&swap);
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        match self.made.take() {
            Some(Made::File(path)) => remove(&path),
            Some(Made::Zram(number)) => {
                off(Path::new(&format!("/dev/zram{number}")));
                let _ = fs::write(format!("{ZRAM}/hot_remove"), number);
            }
            None => {}
        }
    }
}

fn made() -> io::Result<Option<Made>> {
    let areas = areas();
    areas.iter().filter(|path| is_left_over(path)).for_each(|path| remove(path));
    // That of another test goes with its process, at any moment.
    if areas.iter().any(|path| maker(path).is_none()) {
        return Ok(None);
    }
    Ok(Some(file().or_else(|error| zram().map_err(|_| error))?))
}

/// What swaps already.
fn areas() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next().map(PathBuf::from))
        .collect()
}

/// The process that made it for its tests.
fn maker(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)
}

/// Made by a process that is gone.
fn is_left_over(path: &Path) -> bool {
    maker(path).is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}

fn file() -> io::Result<Made> {
    let path = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
    let result = write_header(&path).and_then(|()| on(&path));
    if result.is_err() {
        remove(&path);
    }
    result.map(|()| Made::File(path))
}

fn zram() -> io::Result<Made> {
    let number = fs::read_to_string(format!("{ZRAM}/hot_add"))?.trim().to_owned();
    let area = Swap { made: Some(Made::Zram(number.clone())) };
    fs::write(format!("/sys/block/zram{number}/disksize"), SIZE.to_string())?;
    let device = PathBuf::from(format!("/dev/zram{number}"));
    write_header(&device)?;
    on(&device)?;
    std::mem::forget(area);
    Ok(Made::Zram(number))
}

/// The first page of an area of version 1: the version, the last page, no bad ones, a signature.
fn write_header(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        // An area has no holes.
        let zeros = vec![0; 1 << 20];
        (0..SIZE / zeros.len()).try_for_each(|n| file.write_all_at(&zeros, (n << 20) as u64))?;
    }
    let last = (SIZE / PAGE - 1) as u32;
    file.write_all_at(&1u32.to_le_bytes(), 1024)?;
    file.write_all_at(&last.to_le_bytes(), 1028)?;
    file.write_all_at(b"SWAPSPACE2", PAGE as u64 - 10)?;
    file.sync_all()
}

fn on(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    match unsafe { libc::swapon(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn off(path: &Path) {
    if let Ok(path) = CString::new(path.as_os_str().as_bytes()) {
        unsafe { libc::swapoff(path.as_ptr()) };
    }
}

fn remove(path: &Path) {
    off(path);
    let _ = fs::remove_file(path);
}
