//! The table of rates. The host keeps it, so that it outlives an instance of the module.

use semel_core::server::edge::rate;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// The class `Table` of `module.js`.
    #[derive(Debug)]
    pub type Table;

    #[wasm_bindgen(method)]
    fn get(this: &Table, who: &str) -> i64;

    #[wasm_bindgen(method)]
    fn set(this: &Table, who: &str, free_ns: i64);

    #[wasm_bindgen(method, getter)]
    fn size(this: &Table) -> u32;

    #[wasm_bindgen(method)]
    fn sweep(this: &Table, now_ns: i64);
}

impl rate::Table for Table {
    fn get(&self, who: &str) -> i64 {
        self.get(who)
    }

    fn put(&mut self, who: &str, free_ns: i64) {
        self.set(who, free_ns);
    }

    fn count(&self) -> usize {
        self.size() as usize
    }

    fn sweep(&mut self, now_ns: i64) {
        Table::sweep(self, now_ns);
    }
}
