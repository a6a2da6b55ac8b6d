// Tests a wasm module that traps, for example because no memory is left: callers that wait are told, and the next outbox goes on with what is stored.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as sessions from "./session-stub.mjs";
import { Rows, Stub, URL_OF_STUB, deposit, hang, outbox, rejection, until, within } from "./stub.mjs";
import { Semel } from "../../sdk/npm/node.js";

const { RuntimeError, Instance } = WebAssembly;

/** The exports of the modules that are made from now on, in order. */
function modules(t) {
  const made = [];
  WebAssembly.Instance = class extends Instance {
    constructor(module) {
      super(module);
      made.push(super.exports);
    }
  };
  t.after(() => (WebAssembly.Instance = Instance));
  return made;
}

/** Makes a module trap by asking for more memory than there is. Each later call traps too. */
const breaks = (module) => assert.throws(() => module.input(-1), RuntimeError);

const told = ({ code, executed, cause }) => assert.deepEqual([code, executed, cause?.constructor], ["closed", "unknown", RuntimeError]);

/** The calls of `console.error`, which is not printed. */
const console_ = (t) => t.mock.method(console, "error", () => {}).mock;

test("if the module traps, waiting and later calls reject, and the next outbox goes on with the stored requests", async (t) => {
  const [made, said, store, server, closed] = [modules(t), console_(t), new Rows(), new Stub(), []];
  const { semel } = await outbox(t, { store, server });
  semel.addEventListener("closed", ({ detail }) => closed.push(detail.error.constructor));
  server.each = (call, serve) => (call.kind === "change" ? hang() : serve());
  const before = [deposit(semel), deposit(semel, "b", { id: "own" }), semel.outcome("own")].map(rejection);
  await until(() => server.attempts.length === 2, "they are sent");
  breaks(made[0]);
  for (const each of [...before, rejection(deposit(semel, "c"))]) told(await within(each, "a call", 1_000));
  for (const call of [deposit(semel), semel.outcome("x"), semel.pending()]) {
    const { name, message, cause } = await rejection(call);
    assert.deepEqual([name, message, cause?.constructor], ["TypeError", "semel: it is closed", RuntimeError]);
  }
  assert.deepEqual([semel.getSnapshot(), closed, said.callCount()], [{ pending: 0, paused: 0, online: true }, [RuntimeError], 1]);
  server.each = (_call, serve) => serve();
  const recovered = [];
  await outbox(t, { store, server, onrecovered: ({ url, response }) => recovered.push([url.slice(-9), response.status]) });
  await until(() => recovered.length === 2, "the next goes on");
  assert.deepEqual(recovered.sort(), [["a/deposit", 200], ["b/deposit", 200]]);
  assert.deepEqual([...server.runs.values()], [1, 1]);
});

test("if the module has trapped, whatever calls it next settles the caller, and no row is touched", async (t) => {
  console_(t);
  /** What makes the SDK call the module again: an answer or a loss of the attempt (`each`), a later call (`then`), or a timeout. */
  const finds = {
    "an answer": { each: (go) => go() },
    "an attempt that is lost": { each: (_go, lose) => lose() },
    "its time": { attemptTimeoutMs: 100 },
    "what is resumed": { then: (semel) => semel.resume() },
    "who gives up": { then: (_semel, giving) => giving.abort() },
    "who looks what is pending": { then: (semel) => semel.pending().catch(() => {}) },
  };
  for (const [what, { each, then, ...options }] of Object.entries(finds)) {
    const [made, store, server, giving] = [modules(t), new Rows(), new Stub(), new AbortController()];
    const { semel } = await outbox(t, { store, server, ...options });
    let [go, lose] = [];
    server.each = (call, serve) => (call.kind !== "change" ? serve() : new Promise((resolve, reject) => ([go, lose] = [() => resolve(serve()), () => reject(new TypeError("lost"))])));
    const answer = rejection(deposit(semel, "a", { signal: giving.signal }));
    await until(() => go, "it is sent");
    breaks(made.at(-1));
    const rows = new Map(store.rows);
    each?.(go, lose);
    then?.(semel, giving);
    told(await within(answer, what, 2_000));
    assert.deepEqual(store.rows, rows, what);
  }
});

test("a module that traps before or after the store's change settles its caller, sends nothing, and adds no other row", async (t) => {
  console_(t);
  for (const at of ["change", "committed"]) {
    const [made, server] = [modules(t), new Stub()];
    const store = new (class extends Rows {
      async change(id, to, ...more) {
        if (at === "change") breaks(made[0]);
        await super.change(id, to, ...more);
        if (at === "committed") breaks(made[0]);
      }
    })();
    const { semel } = await outbox(t, { store, server });
    told(await within(rejection(deposit(semel)), at, 1_000));
    assert.deepEqual([store.rows.size, server.attempts.length], [at === "change" ? 0 : 1, 0], at);
  }
});

test("open rejects and leaves its store if the module traps as the rows are loaded", async (t) => {
  console_(t);
  const [store, server, made] = [new Rows(), new Stub(), modules(t)];
  const left = [];
  store.presence = () => ({ alive: async () => [], leave: () => left.push("left") });
  store.load = async () => (breaks(made[0]), []);
  const { message, cause } = await rejection(Semel.open({ url: URL_OF_STUB, fetch: server.fetch, store }));
  assert.deepEqual([message, cause?.constructor, left], ["semel: it is closed", RuntimeError, ["left"]]);
});

test("a session whose module traps ends alone: its callers are told, and the next holder goes on with its requests", async (t) => {
  const [made, said, store, server, ended] = [modules(t), console_(t), new sessions.SharedRows(), new sessions.SessionStub(), []];
  const { semel } = await sessions.outbox(t, { server });
  const session = await semel.session("accounts/a", "s", { store, onended: (error) => ended.push(error) });
  let go;
  server.each = (call, serve) => (call.path.endsWith("/sessions") ? serve() : new Promise((resolve) => (go = () => resolve(serve()))));
  const before = [sessions.deposit(session, "x"), sessions.deposit(session, "y")].map(rejection);
  await until(() => go && store.rows.size === 2, "the first is sent, and the second stored");
  breaks(made[1]);
  go();
  for (const each of [...before, rejection(sessions.deposit(session, "z")), rejection(session.pending())]) told(await within(each, "a call", 1_000));
  ended.forEach(told);
  assert.deepEqual([ended.length, said.callCount(), store.living.size, semel.getSnapshot().pending], [1, 1, 0, 0]);
  server.each = (_call, serve) => serve();
  const recovered = [];
  await semel.session("accounts/a", "s", { store, onrecovered: ({ response }) => recovered.push(response.status) });
  await until(() => recovered.length === 2, "the next goes on");
  assert.deepEqual([recovered, server.effects], [[200, 200], ["x", "y"]]);
});

test("a session whose module traps at a call or at the take-over rejects the callers", async (t) => {
  console_(t);
  const made = modules(t);
  const { semel } = await sessions.outbox(t);
  const session = await semel.session("accounts/a", "s");
  breaks(made[1]);
  for (const call of [sessions.deposit(session, "x"), sessions.deposit(session, "y")].map(rejection)) told(await within(call, "a call", 1_000));
  const store = new sessions.SharedRows();
  store.load = async () => (breaks(made[2]), []);
  told(await within(rejection(semel.session("accounts/a", "t", { store })), "the take-over", 1_000));
});
