//! The directory of a cache and how a file comes to be in it. Rule: under an entry's name there is a
//! whole file or none, whenever a process or the machine dies; what dies half-way leaves at most a
//! temporary file, which somebody removes later.

use std::fs::{self, DirBuilder, File, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Lock;
use crate::{Class, Error, Kind, Result};

/// A temporary file or a lock this old belongs to nobody who still writes.
const STALE: Duration = Duration::from_secs(3600);

/// Digits that an entry's name begins with.
const NAME: usize = 64;

/// Makes the directory if it is not there, for its user alone; parents too. With `private` it must be
/// one that nobody else can write to.
///
/// # Errors
/// Class `compile`: `file` when there is no such directory and none can be made, `untrusted` when
/// others can write to it, or it belongs to another user than ours and root.
pub fn prepare(dir: &Path, private: bool) -> Result<()> {
    let make = || {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        fs::metadata(dir)
    };
    let metadata = make().map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => failed(dir, &io::Error::other("it is not a directory")),
        _ => failed(dir, &error),
    })?;
    match others(&metadata).filter(|_| private) {
        None => Ok(()),
        Some(what) => {
            let text = format!("the cache {} {what}, and no key was given", dir.display());
            Err(Error::new(Class::Compile, Kind::Untrusted, text))
        }
    }
}

/// Who else can put files into the directory, in words.
fn others(dir: &Metadata) -> Option<String> {
    // SAFETY: geteuid has no preconditions.
    let ours = unsafe { libc::geteuid() };
    if dir.uid() != ours && dir.uid() != 0 {
        return Some(format!("belongs to the user {}", dir.uid()));
    }
    let mode = dir.mode() & 0o777;
    (mode & 0o022 != 0).then(|| format!("can be written to by others (its mode is {mode:03o})"))
}

/// Puts `bytes` under the entry's name, in place of what is there.
///
/// # Errors
/// Class `compile`, kind `file`: nothing was changed, unless it is the directory that could not be
/// written to the disk.
pub fn store(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    sweep(dir);
    let write = || {
        let mut temporary = Temporary::new(dir, name)?;
        temporary.file.write_all(bytes)?;
        temporary.file.sync_all()?;
        temporary.publish(&dir.join(format!("{name}.cwasm")))?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|error| failed(dir, &error))
}

/// A file that is removed again unless it gets its name.
struct Temporary {
    file: File,
    path: Option<PathBuf>,
}

impl Temporary {
    fn new(dir: &Path, name: &str) -> io::Result<Self> {
        let random = RandomState::new().build_hasher().finish();
        let path = dir.join(format!("{name}.{random:016x}.tmp"));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Temporary { file, path: Some(path) })
    }

    fn publish(&mut self, name: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            fs::rename(path, name)?;
            self.path = None;
        }
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nothing better can be done; a later store tries again.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes what makers that died long ago left behind. What cannot be removed is left.
fn sweep(dir: &Path) {
    let Ok(files) = fs::read_dir(dir) else { return };
    for file in files.flatten() {
        let name = file.file_name();
        let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
        let old = file.metadata().and_then(|metadata| metadata.modified());
        let age = old.ok().and_then(|at| at.elapsed().ok());
        if age.is_none_or(|age| age < STALE) {
            continue;
        }
        if name.ends_with(".tmp") {
            let _ = fs::remove_file(file.path());
        } else if let Ok(Some(lock)) = Lock::of(file.path()) {
            lock.release();
        }
    }
}

/// A temporary file or a lock of an entry.
fn is_ours(name: &str) -> bool {
    let (entry, rest) = name.split_at_checked(NAME).unwrap_or(("", name));
    let known =
        rest == ".lock" || (rest.len() == ".0123456789abcdef.tmp".len() && rest.ends_with(".tmp"));
    known && entry.bytes().all(|byte| byte.is_ascii_hexdigit()) && !entry.is_empty()
}

pub(super) fn failed(path: &Path, error: &io::Error) -> Error {
    Error::new(Class::Compile, Kind::File, format!("{}: {error}", path.display()))
}
