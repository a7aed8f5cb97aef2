//! The initial content of a linear memory: bytes of a file that slots map copy-on-write.
//! Rule: an image never changes; when its last holder goes, no slot keeps a byte of it.

use super::pool::Pool;
use super::sys;
use crate::counts::{Live, Object};
use crate::{Class, Error, Kind, Result};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Initial content of a linear memory, shared by all its instances.
///
/// An image over an artifact's file trusts that file as the loader trusts a shared library: replace
/// it by renaming a new file over its path, which is safe at any time. Truncating it in place would
/// end the process with SIGBUS; writing to it in place would change pages that are not yet touched.
#[derive(Debug)]
pub struct Image {
    id: u64,
    source: Option<Source>,
    /// Pools whose idle slots may still map the image.
    pools: Mutex<Vec<Weak<Pool>>>,
}

#[derive(Debug)]
struct Source {
    file: Arc<File>,
    offset: u64,
    /// The pristine bytes: whole host pages, readable.
    pristine: sys::Reservation,
    _live: Live,
}

/// One defined memory of a module, ready to be given to instances.
#[derive(Clone, Debug)]
pub struct MemoryPlan {
    pub min_bytes: u64,
    /// The declared maximum; `None` when there is none.
    pub max_bytes: Option<u64>,
    pub page_size_log2: u32,
    pub is64: bool,
    pub shared: bool,
    /// False for a memory that cannot live in a slot: it gets plain memory and keeps its segments.
    pub slotted: bool,
    /// Initial content; `None` is all zeros.
    pub image: Option<Arc<Image>>,
}

impl Image {
    /// The image without a byte.
    pub fn empty() -> Arc<Image> {
        static EMPTY: OnceLock<Arc<Image>> = OnceLock::new();
        let make = || Arc::new(Image { id: 0, source: None, pools: Mutex::default() });
        EMPTY.get_or_init(make).clone()
    }

    /// Copies `content` into a sealed file in memory.
    ///
    /// # Errors
    /// `out_of_memory` when the system refuses the file or its mapping.
    pub fn from_bytes(content: &[u8]) -> Result<Arc<Image>> {
        if content.is_empty() {
            return Ok(Image::empty());
        }
        let fill = || {
            let len = sys::round_up(content.len()).ok_or(io::ErrorKind::OutOfMemory)?;
            let file = sys::anonymous_file()?;
            file.set_len(len as u64)?;
            file.write_all_at(content, 0)?;
            sys::seal(&file);
            Image::map(Arc::new(file), 0, len)
        };
        fill().map_err(|error| refused(content.len() as u64, &error))
    }

    /// Maps `len` bytes of a file from `offset` on; both are multiples of the host's page size and
    /// lie within the file. Nothing is read yet.
    ///
    /// # Errors
    /// `corrupted` when the range is not of whole pages within the file, `file` when the file
    /// cannot be asked, `out_of_memory` when the system refuses the mapping.
    pub fn from_file(file: Arc<File>, offset: u64, len: u64) -> Result<Arc<Image>> {
        if len == 0 {
            return Ok(Image::empty());
        }
        let meta = file.metadata().map_err(|error| {
            Error::new(Class::Compile, Kind::File, format!("memory image: {error}"))
        })?;
        let page = sys::page_size() as u64;
        let whole = offset.is_multiple_of(page) && len.is_multiple_of(page);
        if !whole || offset.checked_add(len).is_none_or(|end| end > meta.len()) {
            let text = format!(
                "memory image of {len} bytes at {offset} is not whole pages of {page} bytes \
                 within a file of {} bytes",
                meta.len()
            );
            return Err(Error::new(Class::Compile, Kind::Corrupted, text));
        }
        let bytes = usize::try_from(len).map_err(|_| refused(len, &too_large()))?;
        Image::map(file, offset, bytes).map_err(|error| refused(len, &error))
    }

    fn map(file: Arc<File>, offset: u64, len: usize) -> io::Result<Arc<Image>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let pristine = sys::map_read(&file, offset, len)?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let source = Some(Source { file, offset, pristine, _live: Live::new(Object::Image) });
        Ok(Arc::new(Image { id, source, pools: Mutex::default() }))
    }

    /// The pristine bytes, up to the end of the last host page.
    pub fn bytes(&self) -> &[u8] {
        let Some(source) = &self.source else { return &[] };
        // SAFETY: the mapping is readable and lives as long as the image; memory files are sealed,
        // and an artifact's file is trusted not to be written in place (see `Image`).
        unsafe { std::slice::from_raw_parts(source.pristine.base(), source.pristine.len()) }
    }

    /// Length in bytes; whole host pages.
    pub fn len(&self) -> usize {
        self.source.as_ref().map_or(0, |source| source.pristine.len())
    }

    /// True for the image without a byte.
    pub fn is_empty(&self) -> bool {
        self.source.is_none()
    }

    /// Number that no other image of this process has, or had.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Maps the image copy-on-write at `at`.
    ///
    /// # Safety
    /// `len()` bytes from `at` are the caller's own and nothing refers to them.
    pub(super) unsafe fn map_at(&self, at: *mut u8) -> io::Result<()> {
        let Some(Source { file, offset, pristine, .. }) = &self.source else {
            return Ok(());
        };
        // SAFETY: promised by the caller.
        unsafe { sys::map_private(at, pristine.len(), file, *offset) }
    }

    /// Notes a pool whose slots must let go of the image when it goes.
    pub(super) fn used_by(&self, pool: &Arc<Pool>) {
        if self.is_empty() {
            return;
        }
        let mut pools = self.pools.lock();
        if !pools.iter().any(|known| known.as_ptr() == Arc::as_ptr(pool)) {
            pools.retain(|known| known.strong_count() > 0);
            pools.push(Arc::downgrade(pool));
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for pool in self.pools.get_mut().drain(..) {
            if let Some(pool) = pool.upgrade() {
                pool.forget(self.id);
            }
        }
    }
}

impl MemoryPlan {
    /// The image, or the one without a byte.
    pub(super) fn content(&self) -> Arc<Image> {
        self.image.clone().unwrap_or_else(Image::empty)
    }
}

fn too_large() -> io::Error {
    io::Error::from(io::ErrorKind::OutOfMemory)
}

fn refused(len: u64, error: &io::Error) -> Error {
    let text = format!("the system refused a memory image of {len} bytes: {error}");
    Error::new(Class::Compile, Kind::OutOfMemory, text)
}
