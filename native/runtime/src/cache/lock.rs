//! One maker of an entry at a time. Rule: the system lets go of a lock when its holder dies, so a
//! lock file that lies about holds nobody up; and nobody waits here.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::dir::failed;
use crate::Result;

/// Lock files that went away between opening and locking, at most, before it counts as held.
const TRIES: usize = 10;

/// The right to make an entry, until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// The lock of an entry; `None` while somebody else holds it.
    ///
    /// # Errors
    /// Class `compile`, kind `file`: there can be no lock file here, or no locks.
    pub fn take(dir: &Path, name: &str) -> Result<Option<Self>> {
        Lock::of(dir.join(format!("{name}.lock"))).map_err(|error| failed(dir, &error))
    }

    pub(super) fn of(path: PathBuf) -> io::Result<Option<Self>> {
        for _ in 0..TRIES {
            // Neither a link to elsewhere nor a pipe may have been put there.
            let mut how = File::options();
            how.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = how.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // The holder before may have removed it: then it locks nobody else out.
            if file.metadata()?.nlink() > 0 {
                return Ok(Some(Lock { file, path }));
            }
        }
        Ok(None)
    }

    /// Lets go, and takes the file away.
    pub fn release(self) {
        // While it is still held: who opened it meanwhile sees that it is gone.
        let _ = fs::remove_file(&self.path);
        drop(self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("lock-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// One holder at a time, also within a process; letting go takes the file away, dying does not.
    #[test]
    fn one_holder_at_a_time() {
        let folder = Folder::new("one");
        let take = |name| Lock::take(&folder.0, name).unwrap();
        let first = take("a").unwrap();
        assert!(take("a").is_none());
        assert!(take("b").is_some());
        first.release();
        assert!(!folder.0.join("a.lock").exists());
        drop(take("a").unwrap());
        assert!(folder.0.join("a.lock").exists());
        assert!(take("a").is_some());
    }

    /// The lock of a file that is gone locks nobody out, and is not taken for one that does.
    #[test]
    fn a_removed_file_is_no_lock() {
        let folder = Folder::new("removed");
        let orphan = Lock::take(&folder.0, "a").unwrap().unwrap();
        fs::remove_file(folder.0.join("a.lock")).unwrap();
        let lock = Lock::take(&folder.0, "a").unwrap().unwrap();
        assert!(orphan.file.metadata().unwrap().nlink() == 0);
        assert!(Lock::take(&folder.0, "a").unwrap().is_none());
        drop(lock);
    }

    /// A link to elsewhere is refused, and so is a place that is no folder.
    #[test]
    fn links_are_refused() {
        let folder = Folder::new("links");
        let target = folder.0.join("target");
        File::create(&target).unwrap();
        std::os::unix::fs::symlink(&target, folder.0.join("a.lock")).unwrap();
        assert!(Lock::take(&folder.0, "a").is_err());
        assert!(Lock::take(&target, "a").is_err());
    }
}
