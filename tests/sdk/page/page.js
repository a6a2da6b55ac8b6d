// The page for the tests of IndexedDB: the store, the SDK, and the database as others reach it, through methods that `watch` does not see.

import { indexedDbStore, leavePage } from "/js/indexeddb.js";
import { conformance } from "/sdk/conformance.js";
import { Semel, StoreError } from "/sdk/index.js";

const { transaction: begin } = IDBDatabase.prototype;
const { put: write } = IDBObjectStore.prototype;
const { open: connect, deleteDatabase } = IDBFactory.prototype;

const ended = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

async function within(name, mode, work) {
  const database = await ended(connect.call(indexedDB, name));
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

/** What `watch` has seen: with what the transactions of a database were opened, which were aborted, and their connections. */
let seen = [];
let connections = [];

window.lab = {
  /** Opens a store, and makes sure that its database exists. */
  async open(...given) {
    const store = indexedDbStore(...given);
    await store.load();
    return store;
  },
  /** What the SDK does when the page goes into the back/forward cache of WebKit; and what the browser does when it is shown again. */
  leavePage,
  showPage: () => void dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })),
  checks: conformance((name) => indexedDbStore(name, "strict")),
  get: (name, id) => within(name, "readonly", (rows) => ended(rows.get(id))),
  put: (name, id, row) => within(name, "readwrite", (rows) => void write.call(rows, row, id)),
  drop: (name) => ended(deleteDatabase.call(indexedDB, name)),

  /** Deletes a database. Resolves to whether a connection to it was open, which then closes itself. */
  async dropHeld(name) {
    const { close } = IDBDatabase.prototype;
    let isHeld = false;
    IDBDatabase.prototype.close = function () {
      isHeld = true;
      close.call(this);
    };
    await lab.drop(name);
    IDBDatabase.prototype.close = close;
    return isHeld;
  },

  async shape(name) {
    const database = await ended(connect.call(indexedDB, name));
    const shape = `${database.version} ${[...database.objectStoreNames]}`;
    database.close();
    return shape;
  },

  /** Makes a database with another version, or with other object stores. */
  async make(name, version, stores = "rows") {
    const opening = connect.call(indexedDB, name, version);
    opening.onupgradeneeded = () => opening.result.createObjectStore(stores);
    (await ended(opening)).close();
  },

  watch(name) {
    seen = [];
    connections = [];
    IDBDatabase.prototype.transaction = function (stores, mode, options) {
      if (this.name === name) {
        connections.push(this);
        seen.push(`${stores} ${mode} ${options?.durability}`);
      }
      const transaction = begin.apply(this, arguments);
      transaction.addEventListener("abort", () => seen.push("aborted"));
      return transaction;
    };
  },

  seen: () => seen,

  unwatch() {
    IDBDatabase.prototype.transaction = begin;
    return seen;
  },

  /** Resolves once the browser has closed the last of those connections. */
  closed: () => new Promise((resolve) => connections.at(-1).addEventListener("close", () => resolve())),

  /** Closes every connection that had a transaction since `watch`. The store is not told. */
  sever: () => connections.forEach((connection) => connection.close()),

  /** Until `keepWrites`, each write succeeds, but its transaction then fails, because a row is added twice. */
  abortWrites(written = () => {}) {
    IDBObjectStore.prototype.put = function (row, id) {
      const request = write.apply(this, arguments);
      this.add(row, id);
      written();
      return request;
    };
  },

  keepWrites() {
    IDBObjectStore.prototype.put = write;
  },

  /** Replaces `open` of IndexedDB until `connectAgain`. */
  connectBy(open) {
    IDBFactory.prototype.open = open;
  },

  connectAgain() {
    IDBFactory.prototype.open = connect;
  },

  /**
   * What happens in WebKit once the process that keeps the rows has ended: until `connectAgain`, this document can't reach it. Call it after `watch`.
   */
  loseServer() {
    const error = new DOMException("Connection to Indexed Database server lost. Refresh the page to try again", "UnknownError");
    lab.connectBy(() => {
      const request = { error };
      setTimeout(() => request.onerror());
      return request;
    });
    lab.sever();
  },

  /** Until `wait`, timers of the store run out only by `pass`. `patient()` counts those that hold a change back. */
  holdTimers() {
    const { setTimeout: set, clearTimeout: clear } = window;
    const held = new Map();
    let last = 0;
    window.setTimeout = (callback, ms, ...rest) => {
      if (ms !== 4) return set(callback, ms, ...rest);
      held.set(`held ${(last += 1)}`, callback);
      return `held ${last}`;
    };
    window.clearTimeout = (timer) => held.delete(timer) || clear(timer);
    const pass = () => [...held.values()].forEach((callback) => callback());
    const wait = () => void Object.assign(window, { setTimeout: set, clearTimeout: clear });
    return { patient: () => held.size, pass, wait };
  },

  /** A megabyte that can't be compressed. */
  large() {
    const bytes = new Uint8Array(1 << 20);
    for (let at = 0; at < bytes.length; at += 1 << 16) crypto.getRandomValues(bytes.subarray(at, at + (1 << 16)));
    return bytes;
  },

  /** Resolves to what a promise rejects with. */
  async rejection(promise) {
    const thrown = await promise.then(
      () => {
        throw new Error("it did not reject");
      },
      (error) => error,
    );
    const told = ({ name, code, executed, cause, message } = {}) => ({ name, code: name in codeless ? undefined : code, executed, message, cause: cause && told(cause) });
    return { ...told(thrown), isStoreError: thrown instanceof StoreError };
  },

  /** Opens an outbox whose `fetch` is the test's, through `serve`. */
  async outbox(options) {
    const fetch = async (url, { method, headers, body, signal }) => {
      const aborted = new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
      const call = { url, method, headers: [...new Headers(headers)], body: body && new TextDecoder().decode(body) };
      const answer = await Promise.race([serve(call), aborted]);
      if (!answer) throw new TypeError("fetch failed");
      return new Response(answer.body, { status: answer.status, headers: answer.headers });
    };
    return Semel.open({ url: "https://worker.test", retryIntervalMs: 10, fetch, ...options });
  },
};

/** The `code` of a DOMException is a number that says no more than its name. */
const codeless = { DataError: 1, InvalidStateError: 1, NotFoundError: 1, QuotaExceededError: 1, SecurityError: 1, UnknownError: 1, VersionError: 1, AbortError: 1 };
