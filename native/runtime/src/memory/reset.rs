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
    pub(super) writes: Writes,
}

/// What is written of a page that is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// All of it: the least work.
    All,
    /// The lines of the cache that differ. The others stay in the cache of the processor whose guest
    /// read them, which matters when another one restores.
    Changed,
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

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
        // SAFETY: the scan answers ranges within the area, which nothing refers to, and what is
        // written is accessible: images and `len` end so.
        let bytes = |from: usize, to: usize| unsafe {
            std::slice::from_raw_parts_mut(area.base.add(from), to.saturating_sub(from))
        };
        put(bytes(start, split), image.get(start..split).unwrap_or_default(), area.writes);
        if !region.is_zero_page() {
            put_zeros(bytes(split, end.min(area.len)), area.writes);
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

fn put(to: &mut [u8], from: &[u8], writes: Writes) {
    if writes == Writes::All {
        return to.copy_from_slice(from);
    }
    let ((to, end_to), (from, end_from)) = (to.as_chunks_mut::<LINE>(), from.as_chunks::<LINE>());
    to.iter_mut().zip(from).filter(|(to, from)| to != from).for_each(|(to, from)| *to = *from);
    end_to.copy_from_slice(end_from);
}

fn put_zeros(to: &mut [u8], writes: Writes) {
    if writes == Writes::All {
        return to.fill(0);
    }
    let (to, end_to) = to.as_chunks_mut::<LINE>();
    to.iter_mut().filter(|to| **to != [0; LINE]).for_each(|to| *to = [0; LINE]);
    end_to.fill(0);
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
    use super::{Area, Writes, is_pristine, put, put_zeros};
    use crate::memory::Image;

    /// One wrong bit anywhere is a difference.
    #[test]
    fn every_difference_is_seen() {
        let image = Image::from_bytes(&[5; 5000]).unwrap();
        let mut memory = vec![0; 65536];
        memory[..5000].fill(5);
        let pristine = |memory: &mut [u8]| {
            let (base, len) = (memory.as_mut_ptr(), memory.len());
            is_pristine(&Area { base, len, extent: len, image: &image, writes: Writes::All })
        };
        assert!(pristine(&mut memory));
        for at in [0, 1, 4095, 4999, 5000, image.len() - 1, image.len(), 12287, 12288, 65535] {
            memory[at] ^= 0x10;
            assert!(!pristine(&mut memory), "{at}");
            memory[at] ^= 0x10;
        }
        assert!(pristine(&mut memory));
    }

    /// Either way to write makes any content the wanted one.
    #[test]
    fn what_is_written_does_not_depend_on_the_way() {
        let image: Vec<u8> = (0..4096 + 40).map(|at| (at % 251) as u8).collect();
        for writes in [Writes::All, Writes::Changed] {
            for dirt in [0, 1, 63, 64, 65, 4095, 4096, 4096 + 39] {
                let mut memory = image.clone();
                memory[dirt] ^= 0x80;
                put(&mut memory, &image, writes);
                assert!(memory == image, "{writes:?} {dirt}");
                put_zeros(&mut memory, writes);
                assert!(memory.iter().all(|byte| *byte == 0), "{writes:?} {dirt}");
                memory[dirt] = 1;
                put_zeros(&mut memory, writes);
                assert!(memory.iter().all(|byte| *byte == 0), "{writes:?} {dirt}");
            }
        }
    }
}
