//! Which pages of a range of private memory were written: the PAGEMAP_SCAN ioctl (Linux 6.7).
//! Rule: a page is reported when it is present or swapped out and not the file's own page.

use std::io;

/// Regions one scan can report; the caller scans on from where it stopped.
pub(super) const REGIONS: usize = 512;

/// A run of written pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

impl Region {
    /// Address range of the run.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The first `bytes` of the run.
    pub(super) fn first(&self, bytes: usize) -> Region {
        Region { end: self.end.min(self.start.saturating_add(bytes as u64)), ..*self }
    }

    /// True when the run is the kernel's page of zeros: it was read, never written.
    pub(super) fn is_zero_page(&self) -> bool {
        self.categories & PAGE_IS_PFNZERO != 0
    }
}

/// Room for the regions of one scan, on the stack and not initialized.
pub(super) struct Buffer([std::mem::MaybeUninit<Region>; REGIONS]);

impl Buffer {
    pub(super) fn new() -> Self {
        Buffer([const { std::mem::MaybeUninit::uninit() }; REGIONS])
    }
}

/// What one scan found.
pub(super) struct Batch<'a> {
    pub(super) regions: &'a [Region],
    /// The address up to which the scan came.
    pub(super) walked_to: usize,
}

// From the kernel's uapi/linux/fs.h.
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
#[cfg(target_os = "linux")]
const PAGEMAP_SCAN: u64 =
    (3 << 30) | ((size_of::<ScanArg>() as u64) << 16) | ((b'f' as u64) << 8) | 16;

#[cfg(target_os = "linux")]
#[derive(Default)]
#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// True when this kernel tells which pages were written; probed once.
pub fn pagemap_scan_available() -> bool {
    #[cfg(target_os = "linux")]
    return device::open().is_some();
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// Reports the written pages of a range, about `max_pages` of them at most.
///
/// Not the file's (inverted and required), and present or swapped out (any of). The zero page is
/// told by its category instead of being left out: over an image it would be a change.
#[cfg(target_os = "linux")]
pub(super) fn scan<'a>(
    range: std::ops::Range<usize>,
    max_pages: usize,
    buffer: &'a mut Buffer,
) -> io::Result<Batch<'a>> {
    let file = device::open().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    // No range has more regions than pages; the kernel allocates what it is told to have room for.
    let regions = range.len().div_ceil(super::sys::page_size()).min(REGIONS);
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        start: range.start as u64,
        end: range.end as u64,
        vec: buffer.0.as_mut_ptr() as u64,
        vec_len: regions as u64,
        max_pages: max_pages as u64,
        category_inverted: PAGE_IS_FILE,
        category_mask: PAGE_IS_FILE,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask: PAGE_IS_PFNZERO,
        ..ScanArg::default()
    };
    let found = device::ioctl(file, &mut arg)?;
    let walked_to = arg.walk_end as usize;
    // Without progress the caller would scan for ever.
    if found > regions || walked_to <= range.start || walked_to > range.end {
        return Err(io::Error::other("the pagemap scan made no progress"));
    }
    // SAFETY: the kernel filled the first `found` regions.
    let regions = unsafe { std::slice::from_raw_parts(buffer.0.as_ptr().cast::<Region>(), found) };
    Ok(Batch { regions, walked_to })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn scan<'a>(
    _range: std::ops::Range<usize>,
    _max_pages: usize,
    _buffer: &'a mut Buffer,
) -> io::Result<Batch<'a>> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(target_os = "linux")]
mod device {
    use super::{PAGEMAP_SCAN, ScanArg};
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::sync::OnceLock;

    /// This process's pagemap, when it can be scanned.
    pub(super) fn open() -> Option<&'static File> {
        static FILE: OnceLock<Option<File>> = OnceLock::new();
        if let Some(known) = FILE.get() {
            return known.as_ref();
        }
        match File::open("/proc/self/pagemap") {
            // Not kept: there may be files again later.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => None,
            file => FILE.get_or_init(|| file.ok().filter(answers)).as_ref(),
        }
    }

    /// Older kernels answer ENOTTY; a probe of nothing tells.
    fn answers(file: &File) -> bool {
        let size = size_of::<ScanArg>() as u64;
        ioctl(file, &mut ScanArg { size, ..ScanArg::default() }).is_ok()
    }

    pub(super) fn ioctl(file: &File, arg: &mut ScanArg) -> io::Result<usize> {
        // SAFETY: the argument has the kernel's layout and its `vec` has room for `vec_len`.
        let code = unsafe { libc::ioctl(file.as_raw_fd(), PAGEMAP_SCAN as libc::Ioctl, arg) };
        usize::try_from(code).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{Buffer, pagemap_scan_available, scan};
    use crate::memory::sys::{Reservation, page_size, protect};

    /// Installs a marker that the kernel keeps where the entry of a swapped page would be.
    const MADV_GUARD_INSTALL: libc::c_int = 102;

    fn found(range: &Reservation) -> Vec<(usize, usize, bool)> {
        let base = range.base() as usize;
        let mut buffer = Buffer::new();
        let batch = scan(base..base + range.len(), 0, &mut buffer).unwrap();
        assert_eq!(batch.walked_to, base + range.len());
        let page = |address: usize| (address - base) / page_size();
        let regions = batch.regions.iter();
        regions.map(|r| (page(r.range().start), page(r.range().end), r.is_zero_page())).collect()
    }

    /// A range whose pages are all told apart needs as much room as there can be.
    #[test]
    fn a_small_range_is_scanned_in_one_go() {
        if !pagemap_scan_available() {
            return;
        }
        for pages in [1, 2, 3, 16] {
            let range = Reservation::new(pages * page_size()).unwrap();
            unsafe { protect(range.base(), range.len(), true).unwrap() };
            let each = |page: usize| unsafe {
                let byte = range.base().add(page * page_size());
                if page.is_multiple_of(2) {
                    byte.write_volatile(1)
                } else {
                    _ = byte.read_volatile()
                }
                (page, page + 1, !page.is_multiple_of(2))
            };
            let expected: Vec<_> = (0..pages).map(each).collect();
            assert_eq!(found(&range), expected, "{pages} pages");
        }
    }

    /// Written pages, pages that were read, and entries of pages that are not present.
    #[test]
    fn a_scan_tells_what_has_a_page() {
        if !pagemap_scan_available() {
            return;
        }
        let range = Reservation::new(64 * page_size()).unwrap();
        assert_eq!(found(&range), []);
        unsafe {
            protect(range.base(), range.len(), true).unwrap();
            let page = |n: usize| range.base().add(n * page_size());
            page(3).write_volatile(1);
            page(4).write_volatile(1);
            page(10).read_volatile();
            page(63).write_volatile(0);
            assert_eq!(found(&range), [(3, 5, false), (10, 11, true), (63, 64, false)]);
            // Older kernels do not know the marker.
            if libc::madvise(page(20).cast(), page_size(), MADV_GUARD_INSTALL) == 0 {
                let swapped = (20, 21, false);
                assert_eq!(
                    found(&range),
                    [(3, 5, false), (10, 11, true), swapped, (63, 64, false)]
                );
            }
            protect(range.base(), range.len(), false).unwrap();
            assert!(found(&range).contains(&(3, 5, false)));
        }
    }
}
