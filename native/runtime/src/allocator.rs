//! The allocator of the programs that are made of this crate: mimalloc. Rule: an alignment that mimalloc
//! gives to every block anyway is not asked for, since asking takes longer than allocating.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned};
use libmimalloc_sys::{mi_zalloc, mi_zalloc_aligned};

/// To be the `#[global_allocator]`.
pub struct Allocator;

/// A block of that many bytes or more is aligned to as many (mimalloc's `MI_MAX_ALIGN_SIZE`), a smaller
/// one to half of that.
const NATURAL: usize = 16;

fn is_natural(layout: Layout) -> bool {
    layout.align() <= NATURAL / 2 || (layout.align() == NATURAL && layout.size() >= NATURAL)
}

// SAFETY: mimalloc gives blocks of the size and alignment that are asked for, or null, and moves or
// frees what it gave, however it was asked for.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size, and a power of two.
        let block = unsafe {
            match is_natural(layout) {
                true => mi_malloc(layout.size()),
                false => mi_malloc_aligned(layout.size(), layout.align()),
            }
        };
        block.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe {
            match is_natural(layout) {
                true => mi_zalloc(layout.size()),
                false => mi_zalloc_aligned(layout.size(), layout.align()),
            }
        };
        block.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: it came from here.
        unsafe { mi_free(block.cast()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // A block that shrinks below what aligns it by itself is asked for by name.
        let aligned = Layout::from_size_align(size, layout.align());
        // SAFETY: it came from here, and the caller promises that the new size is a valid one.
        let block = unsafe {
            match aligned.is_ok_and(is_natural) {
                true => mi_realloc(block.cast(), size),
                false => mi_realloc_aligned(block.cast(), size, layout.align()),
            }
        };
        block.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of every small size and alignment, many at once, moved and moved back: aligned, zeroed
    /// where that was asked for, and with their bytes.
    #[test]
    fn blocks_are_what_was_asked_for() {
        let mut blocks = Vec::new();
        for size in (1..300).chain([1000, 1024, 4096, 5000, 70_000, 1 << 20]) {
            for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: sizes are not zero, and every block is freed below with its layout.
                unsafe {
                    let block = Allocator.alloc(layout);
                    block.write_bytes(0xaa, size);
                    blocks.push((block, layout, 0xaa));
                    blocks.push((Allocator.alloc_zeroed(layout), layout, 0));
                }
            }
        }
        for size in [1, 7, 8, 15, 16, 17, 24, 100, 10_000, 16] {
            for (block, layout, byte) in &mut blocks {
                let kept = layout.size().min(size);
                // SAFETY: as above; the bytes below `kept` were written.
                unsafe {
                    *block = Allocator.realloc(*block, *layout, size);
                    let bytes = std::slice::from_raw_parts(*block, kept);
                    assert!(bytes.iter().all(|is| is == byte), "{layout:?} to {size}");
                    block.write_bytes(*byte, size);
                }
                *layout = Layout::from_size_align(size, layout.align()).unwrap();
                assert_eq!(block.addr() % layout.align(), 0, "{layout:?}");
            }
        }
        for (block, layout, _) in blocks {
            // SAFETY: as above.
            unsafe { Allocator.dealloc(block, layout) };
        }
    }
}
