//! The module's memory allocator: blocks of a few sizes, with a list of free blocks for each size, so that a free block
//! is found at once.
//!
//! Invariants:
//! - A block keeps its size for ever, and is used again only for that size. So the memory grows to the sum of the peak
//!   uses of all sizes. There are four sizes to each doubling, so at most a quarter of a block is wasted.
//! - A block is aligned to 8 bytes. A request for more alignment gets no block; nothing here makes one.
//!
//! Written by hand: one list of all free blocks takes longer the more blocks there are, and a published allocator as
//! fast as this one takes half a kilobyte more, which every visitor downloads.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::memory_grow;
use core::cell::UnsafeCell;
use core::ptr::null_mut;

const PAGE: usize = 65_536;
const ALIGN: usize = 8;
/// Sizes up to 64 bytes differ by this power of two. In each doubling beyond, they differ by twice as much as in the
/// one before.
const BITS_MIN: u32 = 3;
const SIZES: usize = 256;

/// The allocator.
#[derive(Debug)]
pub(crate) struct Blocks(UnsafeCell<State>);

#[derive(Debug)]
struct State {
    /// The first free block of each size. Each free block holds the address of the next one.
    free: [*mut u8; SIZES],
    /// The memory from here to `end` was never in use.
    fresh: usize,
    end: usize,
}

// SAFETY: WebAssembly without the feature `atomics` has one thread.
#[allow(unsafe_code)]
unsafe impl Sync for Blocks {}

impl Blocks {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(State { free: [null_mut(); SIZES], fresh: 0, end: 0 }))
    }
}

/// The index of the size that holds `layout`, and that size in bytes.
fn sized(layout: Layout) -> (usize, usize) {
    let last = layout.size() - 1;
    let bits = (last | 63).ilog2() - 2;
    let steps = last >> bits;
    (((bits - BITS_MIN) as usize) << 3 | steps, (steps + 1) << bits)
}

#[allow(unsafe_code)]
// SAFETY: a block is in a list only while nobody uses it; each list has blocks of one size; fresh memory is beyond all
// that was given out.
unsafe impl GlobalAlloc for Blocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let state = unsafe { &mut *self.0.get() };
        let (index, bytes) = sized(layout);
        if layout.align() > ALIGN {
            return null_mut();
        }
        let Some(free) = state.free.get_mut(index) else { return null_mut() };
        if !free.is_null() {
            let block = *free;
            *free = unsafe { *block.cast() };
            return block;
        }
        if bytes > state.end - state.fresh {
            let pages = bytes.div_ceil(PAGE);
            let before = memory_grow(0, pages);
            if before == usize::MAX {
                return null_mut();
            }
            // Somebody else has grown the memory in between, so the new pages are apart.
            if before * PAGE != state.end {
                state.fresh = before * PAGE;
            }
            state.end = (before + pages) * PAGE;
        }
        state.fresh += bytes;
        (state.fresh - bytes) as *mut u8
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let state = unsafe { &mut *self.0.get() };
        if let Some(free) = state.free.get_mut(sized(layout).0) {
            unsafe { *block.cast() = *free };
            *free = block;
        }
    }
}
