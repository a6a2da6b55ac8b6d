//! The client in WebAssembly: `semel-core`'s machine, bytes in and bytes out.
//!
//! The module imports nothing. What needs the world (`fetch`, IndexedDB, timers, clocks, promises) is in `sdk/js/`, where
//! it takes a fraction of the bytes; nothing is decided there. An outbox has an instance of its own: what it held is gone
//! with it, and a trap ends no other.
//!
//! How the host calls: it writes what it has to say at [`semel_input`], calls [`semel_call`], and reads the answer, of
//! [`semel_length`] bytes, before it calls again. [`host`] says what stands in both.
//!
//! Invariants:
//! - Nothing is decided here either: what to store, when to send and what an answer means is the machine's.
//! - What can't be read changes nothing.

pub mod host;
mod kept;
#[cfg(target_arch = "wasm32")]
mod memory;
pub mod session;

pub use host::Host;

use std::cell::RefCell;

/// What this module holds: the outbox, or, where it is compiled with the feature `session`, a session.
#[cfg(not(feature = "session"))]
type Held = Host;
#[cfg(feature = "session")]
type Held = session::Host;

struct Module {
    host: Held,
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static MODULE: RefCell<Module> =
        const { RefCell::new(Module { host: Held::new(), input: Vec::new(), output: Vec::new() }) };
}

/// As much is kept to be written to again.
const INPUT_KEPT: usize = 1 << 16;

/// Where the host is to write `length` bytes at most.
#[allow(unsafe_code)]
#[unsafe(export_name = "input")]
pub extern "C" fn semel_input(length: usize) -> *mut u8 {
    MODULE.with_borrow_mut(|module| {
        if module.input.len() < length {
            module.input.resize(length, 0);
        }
        module.input.as_mut_ptr()
    })
}

/// Does what was written there, in as many bytes, and returns where the answer is.
#[allow(unsafe_code)]
#[unsafe(export_name = "_call")]
pub extern "C" fn semel_call(length: usize) -> *const u8 {
    MODULE.with_borrow_mut(|module| {
        let Module { host, input, output } = module;
        *output = input.get(..length).and_then(|input| host.call(input)).unwrap_or_default();
        if input.len() > INPUT_KEPT {
            *input = Vec::new();
        }
        module.output.as_ptr()
    })
}

/// How long it is; zero: what was written can't be read.
#[allow(unsafe_code)]
#[unsafe(export_name = "length")]
pub extern "C" fn semel_length() -> usize {
    MODULE.with_borrow(|module| module.output.len())
}

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static MEMORY: memory::Blocks = memory::Blocks::new();
