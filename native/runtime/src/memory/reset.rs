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
    /// Bytes that may have pages: those beyond `len` are inaccessible zeros, kept for growth.
    pub(super) extent: usize,
    pub(super) image: &'a Image,
}

/// How to restore.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Bytes that stay with an idle slot, restored in place; what was written beyond is dropped.
    /// 0 drops all without a look.
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
    /// Every byte from here on has no page of its own.
    pub(super) top: usize,
}

impl Reset {
    /// Restores the area, or as much of it as `budget` bytes of work allow.
    /// Answers true when all is done; false leaves the rest to a later call.
    pub(super) fn advance(
        &mut self,
        area: &Area<'_>,
        policy: Policy,
        budget: &mut Option<usize>,
    ) -> io::Result<bool> {
        if policy.keep == 0 || !policy.scan {
            return self.drop_rest(area, budget);
        }
        if budget.is_some() && area.extent - self.at > SCAN_SPAN {
            return Ok(false);
        }
        let mut buffer = Buffer::new();
        while self.at < area.extent {
            let range = area.base as usize + self.at..area.base as usize + area.extent;
            let batch = pagemap::scan(range, max_pages(*budget), &mut buffer)?;
            if !self.treat(area, batch.regions, policy.keep, budget)? {
                return Ok(false);
            }
            self.at = self.at.max(batch.walked_to - area.base as usize);
        }
        Ok(true)
    }

    /// Restores regions in place; where enough is kept, the rest of the area is dropped at once.
    fn treat(
        &mut self,
        area: &Area<'_>,
        regions: &[Region],
        keep: usize,
        budget: &mut Option<usize>,
    ) -> io::Result<bool> {
        for region in regions {
            let room = keep.saturating_sub(self.restored);
            let over = written(area, region) > room;
            let kept = region.first(if over { room - room % sys::page_size() } else { usize::MAX });
            if !spend(budget, written(area, &kept)) {
                return Ok(false);
            }
            self.restore(area, &kept);
            if over {
                return self.drop_rest(area, budget);
            }
        }
        Ok(true)
    }

    fn restore(&mut self, area: &Area<'_>, region: &Region) {
        let start = region.range().start - area.base as usize;
        let end = region.range().end - area.base as usize;
        let image = area.image.bytes();
        let split = image.len().clamp(start, end);
        // SAFETY: the scan answers ranges within the area, which nothing refers to; the image has
        // the bytes below `split`, and what is written is accessible: images and `len` end so.
        unsafe {
            if split > start {
                let from = image.as_ptr().add(start);
                std::ptr::copy_nonoverlapping(from, area.base.add(start), split - start);
            }
            let zeros = end.min(area.len);
            if zeros > split && !region.is_zero_page() {
                std::ptr::write_bytes(area.base.add(split), 0, zeros - split);
            }
        }
        let written = written(area, region);
        self.restored += written;
        if written > 0 {
            self.top = end;
        }
        self.at = end;
    }

    /// Drops every private page from here on.
    fn drop_rest(&mut self, area: &Area<'_>, budget: &mut Option<usize>) -> io::Result<bool> {
        if !spend(budget, area.extent - self.at) {
            return Ok(false);
        }
        // SAFETY: the range lies within the area, which nothing refers to.
        unsafe { sys::discard(area.base.add(self.at), area.extent - self.at)? };
        self.at = area.extent;
        Ok(true)
    }
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
    head == image && tail.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::{Area, is_pristine};
    use crate::memory::Image;

    /// One wrong bit anywhere is a difference.
    #[test]
    fn every_difference_is_seen() {
        let image = Image::from_bytes(&[5; 5000]).unwrap();
        let mut memory = vec![0; 65536];
        memory[..5000].fill(5);
        let pristine = |memory: &mut [u8]| {
            let (base, len) = (memory.as_mut_ptr(), memory.len());
            is_pristine(&Area { base, len, extent: len, image: &image })
        };
        assert!(pristine(&mut memory));
        for at in [0, 1, 4095, 4999, 5000, image.len() - 1, image.len(), 12287, 12288, 65535] {
            memory[at] ^= 0x10;
            assert!(!pristine(&mut memory), "{at}");
            memory[at] ^= 0x10;
        }
        assert!(pristine(&mut memory));
    }
}
