//! Restores a slot after its tenant: every page that was written holds the image or zeros again.
//! Rule: a step does bounded work and can be taken again; nothing is believed about what was written.

use super::image::Image;
use super::pagemap::{self, Buffer, Region};
use super::sys;
use std::io;

/// The address space that one bounded step may scan, in bytes: about 0.1 ms when all is present.
const SCAN_SPAN: usize = 64 << 20;

/// The memory to restore. Nothing else refers to its bytes.
pub(super) struct Area<'a> {
    pub(super) base: *mut u8,
    /// Bytes that are accessible.
    pub(super) len: usize,
    /// Bytes that are accessible in a fresh instance.
    pub(super) min: usize,
    pub(super) image: &'a Image,
}

/// How to restore.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Bytes restored in place; what was written beyond is dropped. 0 drops all without a look.
    pub(super) keep: usize,
    /// False where written pages cannot be told: everything is dropped.
    pub(super) scan: bool,
}

/// How far a reset came.
#[derive(Debug, Default)]
pub(super) struct Reset {
    /// Every byte below is restored.
    at: usize,
    /// Bytes restored in place.
    pub(super) restored: usize,
}

impl Reset {
    /// Restores the area, or as much of it as `budget` bytes of work allow.
    /// Answers true when all is done; false leaves the rest to a later call.
    pub(super) fn advance(
        &mut self,
        area: &mut Area<'_>,
        policy: Policy,
        budget: &mut Option<usize>,
    ) -> io::Result<bool> {
        if !shrink(area, budget)? {
            return Ok(false);
        }
        if policy.keep == 0 || !policy.scan {
            return self.drop_rest(area, budget);
        }
        if budget.is_some() && area.min - self.at > SCAN_SPAN {
            return Ok(false);
        }
        self.restore(area, policy.keep, budget)
    }

    fn restore(
        &mut self,
        area: &Area<'_>,
        keep: usize,
        budget: &mut Option<usize>,
    ) -> io::Result<bool> {
        let mut buffer = Buffer::new();
        while self.at < area.min {
            let range = area.base as usize + self.at..area.base as usize + area.min;
            let batch = pagemap::scan(range, max_pages(*budget), &mut buffer)?;
            for region in batch.regions {
                let left = keep.saturating_sub(self.restored);
                let kept = region.first(left - left % sys::page_size());
                let whole = written(area, region) <= left;
                let now = if whole { region } else { &kept };
                if !spend(budget, written(area, now)) {
                    return Ok(false);
                }
                self.restore_region(area, now);
                if !whole {
                    return self.drop_rest(area, budget);
                }
            }
            self.at = batch.walked_to - area.base as usize;
        }
        Ok(true)
    }

    fn restore_region(&mut self, area: &Area<'_>, region: &Region) {
        let start = region.range().start - area.base as usize;
        let end = region.range().end - area.base as usize;
        let image = area.image.bytes();
        let split = image.len().clamp(start, end);
        // SAFETY: the scan answers ranges within the accessible area, which nothing refers to;
        // `split` lies between them, and the image has the bytes below it.
        unsafe {
            if split > start {
                let from = image.as_ptr().add(start);
                std::ptr::copy_nonoverlapping(from, area.base.add(start), split - start);
            }
            if end > split && !region.is_zero_page() {
                std::ptr::write_bytes(area.base.add(split), 0, end - split);
            }
        }
        self.restored += written(area, region);
        self.at = end;
    }

    /// Drops every private page from here on; the file's pages and zeros are back.
    fn drop_rest(&mut self, area: &Area<'_>, budget: &mut Option<usize>) -> io::Result<bool> {
        if !spend(budget, area.min - self.at) {
            return Ok(false);
        }
        // SAFETY: the range is accessible, ours, and nothing refers to it.
        unsafe { sys::discard(area.base.add(self.at), area.min - self.at)? };
        self.at = area.min;
        Ok(true)
    }
}

/// Takes grown memory away again.
fn shrink(area: &mut Area<'_>, budget: &mut Option<usize>) -> io::Result<bool> {
    if area.len <= area.min {
        return Ok(true);
    }
    if !spend(budget, area.len - area.min) {
        return Ok(false);
    }
    // SAFETY: the grown range is ours and nothing refers to it.
    unsafe {
        sys::discard(area.base.add(area.min), area.len - area.min)?;
        sys::protect(area.base.add(area.min), area.len - area.min, false)?;
    }
    area.len = area.min;
    Ok(true)
}

/// Bytes of a region that must be restored: the zero page is as good as new beyond the image.
fn written(area: &Area<'_>, region: &Region) -> usize {
    let range = region.range();
    if !region.is_zero_page() {
        return range.len();
    }
    let image_end = area.base as usize + area.image.len();
    image_end.clamp(range.start, range.end) - range.start
}

/// Pages one scan may report, so that a single step stays bounded. Never so few that a long run of
/// read pages would take many scans.
fn max_pages(budget: Option<usize>) -> usize {
    budget.map_or(0, |bytes| (bytes / sys::page_size() + 1).max(pagemap::REGIONS))
}

fn spend(budget: &mut Option<usize>, bytes: usize) -> bool {
    let Some(left) = budget else { return true };
    match left.checked_sub(bytes) {
        Some(rest) => {
            *left = rest;
            true
        }
        None => false,
    }
}

/// True when the area holds the image and zeros, and nothing else. Reading changes no page.
pub(super) fn is_pristine(area: &Area<'_>) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    let image = area.image.bytes();
    // SAFETY: the area is accessible up to `len` and nothing writes to it.
    let memory = unsafe { std::slice::from_raw_parts(area.base, area.len) };
    let (head, tail) = memory.split_at(image.len());
    area.len == area.min
        && head == image
        && tail.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::{Area, is_pristine};
    use crate::memory::Image;

    /// One wrong bit anywhere is a difference, and so is memory that is still grown.
    #[test]
    fn every_difference_is_seen() {
        let image = Image::from_bytes(&[5; 5000]).unwrap();
        let mut memory = vec![0; 65536 + 4096];
        memory[..5000].fill(5);
        let pristine = |memory: &mut [u8], len| {
            is_pristine(&Area { base: memory.as_mut_ptr(), len, min: 65536, image: &image })
        };
        assert!(pristine(&mut memory, 65536));
        assert!(!pristine(&mut memory, 65536 + 4096));
        for at in [0, 1, 4095, 4999, 5000, image.len() - 1, image.len(), 12287, 12288, 65535] {
            memory[at] ^= 0x10;
            assert!(!pristine(&mut memory, 65536), "{at}");
            memory[at] ^= 0x10;
        }
        assert!(pristine(&mut memory, 65536));
    }
}
