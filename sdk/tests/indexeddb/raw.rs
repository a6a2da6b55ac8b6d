//! The database as others reach it: by JavaScript's own calls, which no watch sees.

use crate::support::wait::settled;
use js_sys::{Array, JsString, Promise};
use semel_sdk::random_id;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

#[wasm_bindgen(inline_js = r#"
const { transaction: begin } = IDBDatabase.prototype;
const { put: write } = IDBObjectStore.prototype;

const ended = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
  request.onblocked = () => reject(new Error("blocked by an open connection"));
});

async function within(name, mode, work) {
  const database = await ended(indexedDB.open(name));
  try {
    const transaction = begin.call(database, "rows", mode);
    const result = await work(transaction.objectStore("rows"));
    if (mode === "readwrite") await new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
    return result;
  } finally {
    database.close();
  }
}

export const get = (name, id) => within(name, "readonly", (rows) => ended(rows.get(id)));
export const put = (name, id, row) => within(name, "readwrite", (rows) => void write.call(rows, row, id));
export const drop = (name) => ended(indexedDB.deleteDatabase(name));

export async function shape(name) {
  const database = await ended(indexedDB.open(name));
  const shape = `${database.version} ${[...database.objectStoreNames]}`;
  database.close();
  return shape;
}

export function make(name, version) {
  const opening = indexedDB.open(name, version);
  opening.onupgradeneeded = () => opening.result.createObjectStore("rows");
  return ended(opening).then((database) => database.close());
}

/** Until `unwatch`: what transactions of a database are opened with, and its connections. */
let seen = [];
let connections = [];

export function watch(name) {
  seen = [];
  connections = [];
  IDBDatabase.prototype.transaction = function (stores, mode, options) {
    if (this.name === name) {
      connections.push(this);
      seen.push(`${stores} ${mode} ${options?.durability}`);
    }
    return begin.apply(this, arguments);
  };
}

export function unwatch() {
  IDBDatabase.prototype.transaction = begin;
  return seen;
}

/** Until `keepWrites`: what is written succeeds, and its transaction is aborted then, as where the disk is full. */
export function abortWrites(name) {
  IDBObjectStore.prototype.put = function () {
    const request = write.apply(this, arguments);
    if (this.transaction.db.name === name) request.addEventListener("success", () => this.transaction.abort());
    return request;
  };
}

export function keepWrites() {
  IDBObjectStore.prototype.put = write;
}

/** Closes every connection that had a transaction since `watch`, as a browser may. */
export const sever = () => connections.forEach((connection) => connection.close());
"#)]
extern "C" {
    fn get(name: &str, id: &str) -> Promise;
    fn put(name: &str, id: &str, row: &JsValue) -> Promise;
    fn drop(name: &str) -> Promise;
    fn shape(name: &str) -> Promise;
    fn make(name: &str, version: u32) -> Promise;
    fn watch(name: &str);
    fn unwatch() -> Array;
    fn sever();
    #[wasm_bindgen(js_name = abortWrites)]
    fn abort_writes(name: &str);
    #[wasm_bindgen(js_name = keepWrites)]
    fn keep_writes();
}

/// A database of a test's own.
pub struct Database {
    pub name: String,
}

impl Database {
    pub fn new() -> Self {
        Self { name: format!("semel test {}", random_id().expect("there is randomness")) }
    }

    /// What is stored under an id.
    pub async fn get(&self, id: &str) -> JsValue {
        settled("a row is read", get(&self.name, id)).await.expect("it can be read")
    }

    /// Stores whatever it is.
    pub async fn put(&self, id: &str, row: &JsValue) {
        settled("a row is written", put(&self.name, id, row)).await.expect("it can be written");
    }

    /// Deletes it; an error if a connection is open.
    pub async fn drop(&self) -> Result<JsValue, JsValue> {
        settled("the database is deleted", drop(&self.name)).await
    }

    /// Its version, and the names of its object stores.
    pub async fn shape(&self) -> String {
        let shape = settled("the database is looked at", shape(&self.name)).await.expect("it is there");
        shape.unchecked_into::<JsString>().into()
    }

    /// Makes it, of another version.
    pub async fn make(&self, version: u32) {
        settled("the database is made", make(&self.name, version)).await.expect("it can be made");
    }

    /// From now on nothing that is written to it is committed.
    pub fn fill(&self) -> FullDisk {
        abort_writes(&self.name);
        FullDisk
    }

    /// Looks at its transactions from now on.
    pub fn watch(&self) -> Watch {
        watch(&self.name);
        Watch
    }
}

/// The transactions of a database are looked at. One watch at a time.
pub struct Watch;

impl Watch {
    /// Store, mode and durability of each, one a text.
    pub fn ended(self) -> Vec<String> {
        unwatch().iter().map(|one| one.as_string().expect("a text")).collect()
    }

    /// Closes the connections that had any.
    pub fn sever(&self) {
        sever();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        unwatch();
    }
}

/// Nothing that is written to a database is committed, until it is dropped.
pub struct FullDisk;

impl Drop for FullDisk {
    fn drop(&mut self) {
        keep_writes();
    }
}
