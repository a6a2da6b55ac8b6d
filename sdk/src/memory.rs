//! The module's memory: blocks of few sizes, and a list of the free ones of each, so that one is found at once.
//!
//! Invariants:
//! - A block has one size for ever: there are four to each doubling, so a quarter of it is lost at most, and what was free is used again by what is
//!   as large. So all that was ever in use at once of each size is what the memory grows to.
//! - A block is aligned to 8 bytes. Who asks for more gets none; nothing here does.
//!
//! By hand: a list of all free blocks takes the longer the more waits, and what is published and is as fast as this takes half a kilobyte more of
//! what every visitor downloads.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::wasm32::memory_grow;
use core::cell::UnsafeCell;
use core::ptr::null_mut;

const PAGE: usize = 65_536;
const ALIGN: usize = 8;
/// Sizes up to 64 are apart by this many bits; each doubling beyond by one more.
const BITS_MIN: u32 = 3;
const SIZES: usize = 256;

/// The allocator.
#[derive(Debug)]
pub(crate) struct Blocks(UnsafeCell<State>);

#[derive(Debug)]
struct State {
    /// The first free block of each size; it holds where the next one is.
    free: [*mut u8; SIZES],
    /// What was never in use, up to the end of the memory.
    fresh: usize,
    end: usize,
}

// SAFETY: wasm without the feature `atomics` has one thread.
#[allow(unsafe_code)]
unsafe impl Sync for Blocks {}

impl Blocks {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(State { free: [null_mut(); SIZES], fresh: 0, end: 0 }))
    }
}

/// Which of the sizes holds `layout`, and how many bytes it is.
fn sized(layout: Layout) -> (usize, usize) {
    let last = layout.size() - 1;
    let bits = (last | 63).ilog2() - 2;
    let steps = last >> bits;
    (((bits - BITS_MIN) as usize) << 3 | steps, (steps + 1) << bits)
}

#[allow(unsafe_code)]
// SAFETY: a block is in a list only while nobody has it, and lists are apart by size; what is fresh is beyond all that was given out.
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
            // What others have grown lies between.
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
