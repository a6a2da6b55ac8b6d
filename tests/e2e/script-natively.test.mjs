// The rules for a handler in JavaScript, tested in Node with its own modules alone: the test provides the storage and the calls. `script.test.mjs`
// has the same on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { natively } from "./natively.mjs";

test("a trap of the module ends the request even if the handler catches it; an invalid or late effect throws at once", async () => {
  const { bind, handle } = await natively("script/script.js");
  const trap = new WebAssembly.RuntimeError("unreachable");
  let kept;
  const asked = (work, store) => {
    const storage = { sql: { exec: () => ({ rowsWritten: 0, columnNames: [] }) }, kv: { delete() {} }, transactionSync: (work) => work() };
    return handle(bind(storage, { handle: (ctx) => (work((kept = ctx)), { status: 204 }) }), "POST", "/", "", new Uint8Array(), 0, "key", "alice", store);
  };
  const caught = (ctx) => {
    try {
      ctx.emit("other", { path: "/" });
    } catch {
      // A handler may swallow the error.
    }
  };
  assert.throws(() => asked(caught, () => { throw trap; }), trap);
  const sent = [];
  const store = (what) => void sent.push(what);
  for (const [work, says] of [
    [(ctx) => ctx.emit(5, { path: "/" }), /ctx\.emit got a number for a key/],
    [(ctx) => ctx.emit("other"), /takes a request with a path/],
    [(ctx) => ctx.call("nowhere"), /Invalid URL/],
  ]) assert.match(asked(work, store), says);
  assert.deepEqual(asked(() => {}, store), [204, "", undefined]);
  for (const late of [() => kept.emit("other", { path: "/" }), () => kept.call("https://example.com")]) assert.throws(late, /has its answer: nothing is sent any more/);
  assert.deepEqual(sent, []);
  assert.deepEqual(asked((ctx) => (ctx.emit("other", { path: "/" }), ctx.call("https://example.com")), store), [204, "", undefined]);
  assert.deepEqual(sent, [["other", "/", "POST", "", new Uint8Array()], [undefined, "https://example.com/", "POST", "", new Uint8Array()]], "what is not said is a POST without a body");
  sent.length = 0;
  for (const body of ["h\u00e9", new Uint8Array([0, 255]), { n: 1 }]) asked((ctx) => ctx.emit("other", { path: "/", body }), store);
  assert.deepEqual(sent.map((each) => each[4]), [new Uint8Array([104, 195, 169]), new Uint8Array([0, 255]), new TextEncoder().encode('{"n":1}')]);
});

test("a promise from handle is neither started nor unhandled; an unreadable cursor fails the request, others are read", async () => {
  const { bind, handle } = await natively("script/script.js");
  const asked = (work, exec = () => {}) => handle(bind({ sql: { exec }, kv: { delete() {} }, transactionSync: (work) => work() }, { handle: work }), "POST", "/", "", new Uint8Array(), 0, "key", "alice");
  let begun = 0;
  const query = { then: () => (begun += 1) };
  // What a call to another object gives is a function in workerd.
  const called = Object.assign(() => {}, query);
  for (const promised of [query, called, Promise.reject(new Error("nobody hears of it"))]) assert.match(asked(() => promised), /handle gave a promise/);
  const storage = { sql: { exec() {} }, kv: { delete() {} }, transactionSync: (work) => work() };
  const inTransaction = { handle: () => (storage.transactionSync(() => called), { status: 204 }) };
  assert.match(handle(bind(storage, inTransaction), "POST", "/", "", new Uint8Array(), 0, "key", "alice"), /a transaction gave a promise/);
  assert.equal(begun, 0);
  const ended = [];
  const exec = (text) => ({
    rowsWritten: 1,
    columnNames: ["n"],
    next: () => {
      ended.push(text);
      if (text === "fails") throw new Error("the disk is full");
      return { done: true };
    },
  });
  const writes = ({ sql }) => (["one", "fails", "other"].forEach(sql.exec), { status: 204 });
  assert.match(asked(writes, exec), /the disk is full/);
  assert.deepEqual(ended, ["other", "fails", "one"]);
});

test("outside of requests Semel keeps no cursor of the object, and transactionSync returns what its callback returns", async () => {
  const { bind } = await natively("script/script.js");
  const storage = { sql: { exec: () => ({ rowsWritten: 1, columnNames: ["n"] }) }, kv: { put() {}, delete() {} }, transactionSync: (work) => work() };
  bind(storage, {});
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  const cursors = Array.from({ length: 10 }, () => new WeakRef(storage.sql.exec("INSERT INTO its VALUES (1) RETURNING n")));
  const given = Promise.resolve();
  assert.equal(storage.transactionSync(() => given), given);
  storage.kv.put("a", 1);
  await turn();
  collect();
  assert.deepEqual(cursors.map((each) => each.deref()), Array(10).fill(undefined));
});

test("while a handler runs, setAlarm is forbidden for its own object only, and it is allowed again afterwards", async () => {
  const { bind, handle } = await natively("script/script.js");
  const storageOf = (set) => ({ sql: { exec() {} }, kv: { put() {}, delete() {} }, transactionSync: (work) => work(), setAlarm: (atMs) => set.push(atMs) });
  const [own, other] = [[], []];
  const [storage, others] = [storageOf(own), storageOf(other)];
  bind(others, {});
  const asked = () => {
    assert.throws(() => storage.setAlarm(1), /storage\.setAlarm is not for handle/);
    others.setAlarm(2);
    return { status: 204 };
  };
  assert.deepEqual(handle(bind(storage, { handle: asked }), "POST", "/", "", new Uint8Array(), 0, "key", "alice"), [204, "", undefined]);
  storage.setAlarm(3);
  assert.deepEqual([own, other], [[3], [2]]);
});

test("transactionSync in a handler returns any value of its callback that is no promise, null and undefined too", async () => {
  const { bind, handle } = await natively("script/script.js");
  for (const what of [null, undefined, 0, { then: 1 }]) {
    const storage = { sql: { exec() {} }, kv: { delete() {} }, transactionSync: (work) => work() };
    let got = "nothing";
    assert.deepEqual(handle(bind(storage, { handle: () => ((got = storage.transactionSync(() => what)), { status: 204 }) }), "POST", "/", "", new Uint8Array(), 0, "key", "alice"), [204, "", undefined]);
    assert.equal(got, what);
  }
});

test("a subclass field with a name of Semel's own is refused, even if blockConcurrencyWhile runs its work at once", async () => {
  const { SemelObject } = await natively("script/index.js");
  class Fielded extends SemelObject {
    storage = "its own";
  }
  const begun = [];
  const ctx = { storage: { getAlarm: async () => null }, getWebSockets: () => [], blockConcurrencyWhile: (work) => begun.push(work()) };
  new Fielded(ctx, {});
  await assert.rejects(Promise.all(begun), /Fielded\.storage is Semel's own: give it another name/);
});

test("attempts that include the deletion of a key are not grouped, however its path is percent-encoded", async () => {
  await natively("script/index.js");
  const { gathering } = await natively("router.js");
  let asked = 0;
  const group = (attempts) => gathering.group(attempts, { group: () => ((asked += 1), []) }, () => {});
  const attempt = (method, pathname) => () => [method, pathname, "", "", new Uint8Array(), 0, 0];
  const change = attempt("POST", "/one");
  for (const path of ["/semel/v1/admin/keys/k", "/%73emel/v1/admin/%6beys/a%2Fb"]) assert.equal(group([change, attempt("DELETE", path), change]), undefined, path);
  assert.equal(asked, 0);
  for (const other of [change, attempt("DELETE", "/semel/v1/admin/keys/k/more"), attempt("DELETE", "/its-own/semel/v1/admin/keys/k"), attempt("POST", "/semel/v1/admin/keys/k")]) assert.deepEqual(group([change, other]), []);
  assert.equal(asked, 4);
});

test("a handler sees both values of a header that another key has sent twice", async () => {
  const { bind, handle } = await natively("script/script.js");
  const storage = { sql: { exec() {} }, kv: { delete() {} }, transactionSync: (work) => work() };
  const object = bind(storage, { handle: (_, { headers }) => ({ status: 200, body: headers.get("x-one") }) });
  assert.deepEqual(handle(object, "POST", "/", "x-one:1\nx-two:3\nx-one:2\n", new Uint8Array(), 0, "key", "alice"), [200, "content-type:text/plain; charset=utf-8\n", "1, 2"]);
});

test("a status is a whole number from 100 to 599, the name of a header a text, and the error shows what it was instead", async () => {
  const { answerOf } = await natively("script/answers.js");
  for (const status of [100, 599]) assert.deepEqual(answerOf({ status }), [status, "", undefined]);
  for (const [status, shown] of [[99, "99"], [600, "600"], [200.5, "200.5"], [NaN, "NaN"], ["200", '"200"'], [undefined, "undefined"], [null, "null"]]) {
    assert.throws(() => answerOf({ status }), new TypeError(`handle gave the status ${shown}: it is a number, such as 200`));
  }
  assert.throws(() => answerOf({ status: 200, headers: [[5, "a"]] }), new TypeError("handle gave a header with the name 5, which is none"));
});

test("a header of an answer has no line break of any kind, and no NUL", async () => {
  const { answerOf } = await natively("script/answers.js");
  for (const sign of ["\n", "\r", "\0"]) {
    assert.throws(() => answerOf({ status: 200, headers: { "x-one": `a${sign}b` } }), new TypeError("handle gave the header x-one a line break"), JSON.stringify(sign));
  }
});

test("JSON has a content type of its own unless a header of exactly that name is there, in any spelling", async () => {
  const { answerOf } = await natively("script/answers.js");
  for (const [name, typed] of [["x-content-type", "x-content-type:a\ncontent-type:application/json\n"], ["Content-Type", "Content-Type:a\n"]]) {
    assert.deepEqual(answerOf({ status: 200, headers: { "x-one": "1", [name]: "a" }, body: [] }), [200, `x-one:1\n${typed}`, "[]"]);
  }
});

test("a schema of anything but texts, and a pattern for keys that would match nothing, are refused before any request", async () => {
  const { SemelObject, worker } = await natively("script/index.js");
  const [list, pattern] = [/Orders\.schema is a list of statements/, /Orders\.key is a function, or a pattern/];
  for (const [own, says] of [[{ schema: "CREATE TABLE a (b)" }, list], [{ schema: ["CREATE TABLE a (b)", 5] }, list], [{ key: "orders/:id" }, pattern], [{ key: "/orders//:id" }, pattern], [{ key: "" }, pattern]]) {
    class Orders extends SemelObject {
      handle() {
        return null;
      }
    }
    Object.assign(Orders, own);
    assert.throws(() => worker(Orders), says, JSON.stringify(own));
  }
});

test("if static key gives anything but a text or null, the error names what it was", async (t) => {
  const { keyOf, setKeyRule } = await natively("script/script.js");
  t.after(() => setKeyRule(undefined));
  for (const [given, named] of [[5, "a number"], [undefined, "nothing"], [Promise.resolve("k"), "a promise"], [Object.assign(() => {}, { then() {} }), "a promise"], [() => "k", "a function"]]) {
    setKeyRule(() => given);
    assert.match(keyOf("GET", "/")[0], new RegExp(`^static key gave ${named}:`), named);
  }
});

test("only in a handler does storage.put go by the entries that throw, and each value is written once outside", async () => {
  const { bind, handle } = await natively("script/script.js");
  const put = [];
  const storage = { sql: { exec() {} }, kv: { put: (...each) => void put.push(each), delete() {} }, transactionSync: (work) => work(), put: async () => {} };
  handle(bind(storage, { handle: () => (storage.put("a", 1), { status: 204 }) }), "POST", "/", "", new Uint8Array(), 0, "key", "alice");
  await storage.put("b", 2);
  assert.deepEqual(put, [["a", 1]]);
});

test("the path of a request has decoded segments, of which the root has none", async () => {
  const { Head } = await natively("script/requests.js");
  for (const [url, segments] of [["/", []], ["/?a=b", []], ["/a%20b/c?d=/e", ["a b", "c"]]]) assert.deepEqual(new Head("GET", url).segments, segments, url);
});

test("a class is served, and an async handler refused, where a test runner has put its own Function in place of the global, as Cloudflare's for Vitest does", async (t) => {
  const { SemelObject, worker } = await natively("script/index.js");
  const { Function } = globalThis;
  t.after(() => (globalThis.Function = Function));
  globalThis.Function = new Proxy(Function, {});
  class Orders extends SemelObject {
    static key = () => "orders";
    handle() {
      return null;
    }
  }
  assert.equal(typeof worker(Orders).fetch, "function");
  Orders.prototype.handle = async () => null;
  assert.throws(() => worker(Orders), /Orders\.handle must not be async/);
});
