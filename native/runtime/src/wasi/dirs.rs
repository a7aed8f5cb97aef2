//! Preopened directories, opened once and shared by the contexts of many instances.
//! A descriptor of a directory holds no position (each listing opens its own), so that instances
//! cannot influence one another through it.

use super::fifo::Preopens;
use super::stdio::{cannot_open, has_nul, refuse_nul};
use crate::error::Result;
use crate::options::Dir;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use wasmtime_wasi::filesystem::WasiFilesystemCtx;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

const KEY: &str = "dirs";

/// The directories of a template.
pub(super) struct Dirs {
    shared: Shared,
    count: usize,
    /// What is looked at again for each context; nothing where there is but one.
    opened: Vec<Opened>,
}

/// The directories of a context, and the same as files.
type Shared = (WasiFilesystemCtx, Preopens);

struct Opened {
    dir: Dir,
    identity: Identity,
}

/// Device and inode. An inode's number is not used again while a descriptor holds it.
type Identity = (u64, u64);

impl Dirs {
    /// Opens the directories in their order, which is that of the guest's descriptors from 3 on.
    ///
    /// # Errors
    /// `badarg` with key `dirs`: a NUL in a path, or what cannot be opened as a directory.
    pub(super) fn open(dirs: &[Dir]) -> Result<Self> {
        dirs.iter().try_for_each(check)?;
        let opened = dirs.iter().map(Opened::new).collect::<Result<Vec<_>>>()?;
        let shared = open_all(dirs.iter())?;
        Ok(Dirs { shared, count: dirs.len(), opened })
    }

    /// As [`Dirs::open`], for one context that is made before the host can put others in their places.
    ///
    /// # Errors
    /// As [`Dirs::open`].
    pub(super) fn open_for_one(dirs: &[Dir]) -> Result<Self> {
        dirs.iter().try_for_each(check)?;
        Ok(Dirs { shared: open_all(dirs.iter())?, count: dirs.len(), opened: Vec::new() })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The opened directories, or fresh ones when the host has put others in their places.
    ///
    /// # Errors
    /// As [`Dirs::open`].
    pub(super) fn share(&self) -> Result<Shared> {
        if self.opened.iter().all(Opened::is_current) {
            return Ok(self.shared.clone());
        }
        open_all(self.opened.iter().map(|opened| &opened.dir))
    }
}

impl Opened {
    /// Looks before the directory is opened: a change in between then shows as a change.
    fn new(dir: &Dir) -> Result<Self> {
        let metadata = std::fs::metadata(&dir.host)
            .map_err(|error| cannot_open(KEY, &dir.host, &error.to_string()))?;
        Ok(Opened { dir: dir.clone(), identity: identity(&metadata) })
    }

    fn is_current(&self) -> bool {
        std::fs::metadata(&self.dir.host).is_ok_and(|metadata| identity(&metadata) == self.identity)
    }
}

fn check(dir: &Dir) -> Result<()> {
    if has_nul(&dir.guest) {
        return Err(refuse_nul(KEY, &dir.guest));
    }
    if has_nul(&dir.host) {
        return Err(refuse_nul(KEY, &dir.host.to_string_lossy()));
    }
    Ok(())
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// File calls are made on the polling thread: a hop to another one costs more than they do.
fn open_all<'a>(dirs: impl Iterator<Item = &'a Dir>) -> Result<Shared> {
    let mut builder = WasiCtxBuilder::new();
    builder.allow_blocking_current_thread(true);
    for dir in dirs {
        let perms = if dir.write { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
        builder
            .preopened_dir(&dir.host, &dir.guest, perms)
            .map_err(|error| cannot_open(KEY, &dir.host, &error.to_string()))?;
    }
    let filesystem = builder.build().filesystem().clone();
    let preopens = Preopens::of(&filesystem);
    Ok((filesystem, preopens))
}
