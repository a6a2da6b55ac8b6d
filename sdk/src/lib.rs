//! The client in WebAssembly: the machine of `semel-core`, with bytes as input and output.
//!
//! The module imports nothing. Everything that needs the outside world (`fetch`, IndexedDB, timers, clocks, promises)
//! is in `sdk/js/`, where it takes a fraction of the bytes; nothing is decided there. Each outbox has an instance of
//! the module. When an outbox ends, its memory goes with it, and a trap ends no other outbox.
//!
//! How the host makes a call: it writes the input at [`semel_input`], calls [`semel_call`], and reads the output before
//! the next call. [`host`] describes both.
//!
//! Invariants:
//! - Nothing is decided here either. The machine decides what to store, when to send, and what an answer means.
//! - An input that can't be read changes nothing.

pub mod host;
mod kept;
#[cfg(target_arch = "wasm32")]
mod memory;
pub mod session;

pub use host::Host;

use std::cell::RefCell;

/// What this module holds: an outbox, or a session if it is compiled with the feature `session`.
#[cfg(not(feature = "session"))]
type Held = Host;
#[cfg(feature = "session")]
type Held = session::Host;

struct Module {
    host: Held,
    input: Vec<u8>,
    output: Option<Vec<u8>>,
}

thread_local! {
    static MODULE: RefCell<Module> =
        const { RefCell::new(Module { host: Held::new(), input: Vec::new(), output: None }) };
}

/// The largest input buffer, in bytes, that is kept for the next call.
const INPUT_KEPT: usize = 1 << 16;

/// Where the host writes its input, of up to `length` bytes.
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

/// Makes the call that the first `length` bytes of the input describe. Returns where the output is; null if the input
/// could not be read.
#[allow(unsafe_code)]
#[unsafe(export_name = "_call")]
pub extern "C" fn semel_call(length: usize) -> *const u8 {
    MODULE.with_borrow_mut(|module| {
        let Module { host, input, output } = module;
        *output = input.get(..length).and_then(|input| host.call(input));
        if input.len() > INPUT_KEPT {
            *input = Vec::new();
        }
        output.as_ref().map_or(std::ptr::null(), |output| output.as_ptr())
    })
}

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static MEMORY: memory::Blocks = memory::Blocks::new();
