// Tests that an application hears the same of its sessions as of the outbox: over pauses, reloads and a network that goes.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { leavePage, page } from "./page-stub.mjs";
import { deposit, outbox, SessionStub, SharedRows } from "./session-stub.mjs";
import { Stub, clock, hang, lost, problem, rejection, until, within } from "./stub.mjs";

afterEach(leavePage);

const failing = ({ body }) => (body === "x" ? [500, "rolled-back", "no", "same-id"] : undefined);

test("a request that the handler keeps failing is told to onpaused, and can be given up after a reload", async (t) => {
  const store = new SharedRows();
  const { semel, server } = await outbox(t);
  server.refuse = failing;
  const told = [];
  const first = await semel.session("accounts/a", "s", { store, onpaused: (each) => told.push(each) });
  const left = Promise.allSettled([deposit(first, "x"), deposit(first, "y")]);
  await until(() => told.length === 1, "it is told of");
  assert.deepEqual([told[0].error.code, told[0].error.executed], ["rolled-back", "unknown"]);
  assert.deepEqual(semel.getSnapshot(), { pending: 2, paused: 1, online: true });
  await first.close();
  await left;
  const recovered = [];
  const second = await semel.session("accounts/a", "s", { store, onpaused: ({ giveUp }) => giveUp(), onrecovered: (each) => recovered.push(each) });
  await deposit(second, "z");
  await until(() => recovered.length === 2, "both are heard of");
  assert.deepEqual([server.effects, recovered.map(({ error }) => error?.code)], [["y", "z"], ["cancelled", undefined]]);
  assert.deepEqual(semel.getSnapshot(), { pending: 0, paused: 0, online: true });
});

test("an aborted request of a session is cancelled after a reload, not continued", async (t) => {
  const store = new SharedRows();
  const { semel, server } = await outbox(t);
  const first = await semel.session("accounts/a", "s", { store });
  server.each = hang;
  const aborting = new AbortController();
  const left = Promise.allSettled([deposit(first, "x", { signal: aborting.signal })]);
  await until(() => server.frames.length === 1, "it is on its way");
  const { length } = store.log;
  aborting.abort();
  await until(() => store.log.length > length, "that is stored");
  await first.close();
  await left;
  server.each = (_call, serve) => serve();
  const recovered = [];
  await semel.session("accounts/a", "s", { store, onrecovered: (each) => recovered.push(each) });
  await until(() => recovered.length === 1, "it is heard of");
  assert.deepEqual([server.effects, recovered[0].error.code, recovered[0].error.executed], [[], "cancelled", "no"]);
});

test("a fenced session calls onended even if nobody waits there, and its requests go on with the next holder", async (t) => {
  const [store, other] = [new SharedRows(), new SharedRows()];
  const { semel, server } = await outbox(t);
  server.each = (call, serve) => (server.frames.includes(call) ? lost() : serve());
  const first = await semel.session("accounts/a", "s", { store });
  const left = Promise.allSettled([deposit(first, "x")]);
  await until(() => server.frames.length > 0, "it is on its way");
  await first.close();
  await left;
  const ended = [];
  const zombie = await semel.session("accounts/a", "s", { store, onended: (error) => ended.push(error.code) });
  await semel.session("accounts/a", "s", { store: other });
  assert.deepEqual(ended, []);
  server.each = (_call, serve) => serve();
  await until(() => ended.length > 0, "it hears of it");
  assert.deepEqual([ended, (await zombie.pending()).map(({ state }) => state), server.effects], [["fenced"], ["elsewhere"], []]);
  const recovered = [];
  const next = await semel.session("accounts/a", "s", { store, onrecovered: ({ response }) => recovered.push(response.status) });
  await deposit(next, "y");
  await until(() => recovered.length > 0, "it is heard of");
  assert.deepEqual([recovered, server.effects, zombie.epoch, next.epoch], [[200], ["x", "y"], 2, 4]);
});

test("a session whose store can't be read is closed without an unhandled rejection, even if a clock has jumped meanwhile", async (t) => {
  const { semel } = await outbox(t);
  const pass = clock(t);
  const store = new SharedRows();
  store.load = async () => {
    pass(10_000);
    throw new Error("no disk");
  };
  const uncaught = [];
  const hear = (error) => uncaught.push(error.message);
  process.on("unhandledRejection", hear);
  t.after(() => process.off("unhandledRejection", hear));
  await assert.rejects(semel.session("accounts/a", "s", { store }), new Error("no disk"));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(uncaught, []);
});

test("a session whose store can't be read does not fence the holder", async (t) => {
  const { semel, server } = await outbox(t);
  const holder = await semel.session("accounts/a", "s");
  const store = new SharedRows();
  store.rows.set("damaged", new Uint8Array([9]));
  assert.equal((await rejection(semel.session("accounts/a", "s", { store }))).code, "store-damaged");
  store.load = async () => {
    throw new Error("broken");
  };
  assert.equal((await rejection(semel.session("accounts/a", "s", { store }))).message, "broken");
  await deposit(holder, "x");
  assert.deepEqual([server.effects, holder.epoch, store.closed], [["x"], 1, 2]);
});

test("close settles session() and pending() that wait for a store that never answers", async (t) => {
  const { semel } = await outbox(t);
  const store = new SharedRows();
  const session = await semel.session("accounts/a", "s", { store });
  const asked = [];
  const held = (name) => () => {
    asked.push(name);
    return hang();
  };
  store.load = held("rows");
  const isHeld = new SharedRows();
  isHeld.load = held("held");
  const isDark = new SharedRows();
  isDark.presence = () => ({ alive: held("dark"), leave: () => {} });
  const waiting = [session.pending(), semel.pending(), semel.session("accounts/b", "s", { store: isHeld }), semel.session("accounts/c", "s", { store: isDark })];
  const settled = Promise.allSettled(waiting);
  await until(() => `${asked.toSorted()}` === "dark,held,rows,rows", "all wait for a store");
  await semel.close();
  // `pending()` of the outbox leaves out a session that is closed meanwhile.
  const told = (await within(settled, "all are settled")).map(({ value, reason }) => value ?? reason.code);
  assert.deepEqual(told, ["closed", [], "closed", "closed"]);
  assert.deepEqual([isHeld.closed, isDark.closed], [1, 1]);
});

test("requests of a session are listed and counted with those of its outbox", async (t) => {
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  const shown = [];
  semel.subscribe(({ pending }) => shown.push(pending));
  server.each = hang;
  const left = Promise.allSettled([deposit(session, "x"), deposit(session, "y"), semel.fetch("/accounts/a/deposit", { method: "POST", body: "z" })]);
  await until(() => semel.getSnapshot().pending === 3, "all are counted");
  const pending = await semel.pending();
  assert.deepEqual(pending.map(({ method, url, state }) => [method, url, state]), Array(3).fill(["POST", "https://worker.test/accounts/a/deposit", "sending"]));
  assert.deepEqual((await session.pending()).map(({ attempts }) => attempts), [1, 1]);
  await session.close();
  assert.equal(semel.getSnapshot().pending, 1);
  await assert.rejects(session.pending(), { code: "closed" });
  assert.equal((await semel.pending()).length, 1);
  await semel.close();
  await left;
});

test("resume of the outbox also resumes the requests of its sessions", async (t) => {
  const [server, own, paused] = [new SessionStub(), new Stub(), []];
  const isOfSession = (url, { headers }) => url.endsWith("/sessions") || new Headers(headers).has("semel-session");
  const onpaused = (each) => paused.push(each);
  const { semel } = await outbox(t, { fetch: (url, init) => (isOfSession(url, init) ? server : own).fetch(url, init), onpaused });
  const session = await semel.session("accounts/a", "s", { onpaused });
  server.refuse = () => [401, "unauthorized", "no", "after-fix"];
  own.each = (call, serve) => (call.kind === "change" && call.n === 1 ? problem(401, "unauthorized", { executed: "no", retry: "after-fix" }) : serve());
  const made = [deposit(session, "x"), semel.fetch("/accounts/b/deposit", { method: "POST" })];
  await until(() => paused.length === 2, "both pause");
  server.refuse = () => undefined;
  semel.resume();
  await within(Promise.all(made), "both go on");
  assert.deepEqual([server.effects, own.runs.size], [["x"], 1]);
});

test("a session's caller is told after giveUpAfterMs, and the answer comes to onrecovered", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 50 });
  const recovered = [];
  const session = await semel.session("accounts/a", "s", { onrecovered: (each) => recovered.push(each) });
  server.each = lost;
  const error = await rejection(deposit(session, "x"));
  assert.deepEqual([error.code, error.executed, recovered.length], ["gave-up", "unknown", 0]);
  server.each = (_call, serve) => serve();
  await until(() => recovered.length === 1, "the answer comes");
  assert.deepEqual([await recovered[0].response.json(), recovered[0].requestId], [{ ran: "x" }, error.requestId]);
});

test("a request in memory whose caller gave up and whose session is fenced comes to onrecovered as fenced", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 50 });
  const recovered = [];
  const session = await semel.session("accounts/a", "s", { onrecovered: (each) => recovered.push(each) });
  server.each = lost;
  const { requestId } = await rejection(deposit(session, "x"));
  server.each = (call, serve) => (call.path.endsWith("/sessions") ? serve() : lost());
  await semel.session("accounts/a", "s");
  server.each = (_call, serve) => serve();
  await until(() => recovered.length === 1, "it is told of");
  const [{ error, response, ...of }] = recovered;
  assert.deepEqual([error.code, error.executed, response, of.requestId, server.effects, await session.pending()], ["fenced", "no", undefined, requestId, [], []]);
});

test("offline a session sends nothing, and once online it sends at once, whatever the interval", async (t) => {
  const { offline, online } = page();
  const { semel, server } = await outbox(t, { retryIntervalMs: 3_600_000 });
  const session = await semel.session("accounts/a", "s");
  server.each = lost;
  const failed = deposit(session, "x");
  await until(() => server.frames.length === 1, "it was sent");
  offline();
  const made = deposit(session, "y");
  await until(() => semel.getSnapshot().pending === 2, "both are in hand");
  server.each = (_call, serve) => serve();
  assert.equal(server.frames.length, 1);
  online();
  await Promise.all([failed, made]);
  assert.deepEqual([server.effects, server.frames.length], [["x", "y"], 2]);
});

test("a hidden page sends nothing for its session, and sends at once when it is shown", async (t) => {
  const browser = page();
  const { semel, server } = await outbox(t, { retryIntervalMs: 3_600_000 });
  const session = await semel.session("accounts/a", "s");
  server.each = lost;
  const told = new Promise((resolve) => semel.addEventListener("lost", resolve, { once: true }));
  const made = deposit(session, "x");
  await told;
  server.each = (_call, serve) => serve();
  browser.hide();
  browser.window("visibilitychange");
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(server.frames.length, 1);
  document.hidden = false;
  browser.window("visibilitychange");
  await made;
  assert.deepEqual([server.effects, server.frames.length], [["x"], 2]);
});

test("a hidden page sends its session's request once the network is back", async (t) => {
  const browser = page();
  const { semel, server } = await outbox(t);
  const session = await semel.session("accounts/a", "s");
  browser.offline();
  const made = deposit(session, "x");
  browser.hide();
  browser.online();
  await within(made, "it is sent");
  assert.deepEqual(server.effects, ["x"]);
});

test("on pagehide a session's attempt under way is sent once more, with keepalive", async (t) => {
  const { window } = page();
  const server = new SessionStub();
  const inits = [];
  const fetch = (url, init) => (inits.push(init), server.fetch(url, init));
  const { semel } = await outbox(t, { server, fetch });
  const session = await semel.session("accounts/a", "s");
  server.each = hang;
  const left = Promise.allSettled([deposit(session, "x")]);
  await until(() => server.frames.length === 1, "it is on its way");
  window("pagehide");
  assert.deepEqual(inits.slice(1).map(({ keepalive, body }) => [keepalive ?? false, new TextDecoder().decode(body)]), [[false, "x"], [true, "x"]]);
  await semel.close();
  await left;
});

test("a session that failed to open is left out of what is pending", async (t) => {
  const { semel, server } = await outbox(t);
  server.each = () => problem(403, "forbidden", { executed: "no", retry: "after-fix" });
  await rejection(semel.session("accounts/a", "s"));
  assert.deepEqual([await semel.pending(), semel.getSnapshot().pending], [[], 0]);
});

test("pending() of a session closed meanwhile rejects as closed, and that of the outbox leaves it out", async (t) => {
  const { semel } = await outbox(t);
  for (const store of [undefined, new SharedRows()]) {
    const session = await semel.session("accounts/a", "s", { store });
    const [own, all] = [rejection(session.pending()), semel.pending()];
    await session.close();
    assert.equal((await own).code, "closed");
    assert.deepEqual(await all, []);
  }
});

test("what a store answers after its session was closed is not counted as pending", async (t) => {
  const { semel } = await outbox(t);
  const store = new SharedRows();
  const session = await semel.session("accounts/a", "s", { store });
  let answer;
  store.before = () => new Promise((resolve) => (answer = resolve));
  const left = rejection(deposit(session, "x"));
  await until(() => answer, "the store is asked");
  const { length } = store.log;
  await session.close();
  assert.equal((await left).code, "closed");
  answer();
  await until(() => store.log.length > length, "it has answered");
  assert.deepEqual([semel.getSnapshot().pending, await semel.pending()], [0, []]);
});

test("an onrecovered that closes its session does not get the other kept answers", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 50 });
  const session = await semel.session("accounts/a", "s");
  const recovered = [];
  server.each = lost;
  await Promise.all(["x", "y"].map((body) => rejection(deposit(session, body))));
  server.each = (_call, serve) => serve();
  await until(async () => (await session.pending()).every(({ state }) => state === "answered"), "both are answered");
  session.onrecovered = (each) => void (recovered.push(each), session.close());
  assert.equal(recovered.length, 1);
});

test("twelve sessions of one outbox cause no warning of too many listeners, and close ends them all", async (t) => {
  const warned = [];
  const warn = ({ name }) => warned.push(name);
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  const { semel } = await outbox(t, { server: { fetch: (...given) => new SessionStub().fetch(...given) } });
  const sessions = [];
  for (let each = 0; each < 12; each += 1) sessions.push(await semel.session(`accounts/${each}`, "s"));
  await new Promise((resolve) => setImmediate(resolve));
  await semel.close();
  for (const session of sessions) assert.equal((await rejection(deposit(session, "x"))).code, "closed");
  assert.deepEqual(warned, []);
});

test("a session does not acknowledge an answer while its row is still stored", async (t) => {
  const { semel, server } = await outbox(t);
  let goOn;
  const held = new Promise((resolve) => (goOn = resolve));
  const store = new SharedRows();
  const { change } = store;
  store.change = async (id, to) => {
    // A change that deletes the row is held until the test lets it go on.
    if (store.rows.has(id) && to(store.rows.get(id)) === undefined) await held;
    return change.call(store, id, to);
  };
  const session = await semel.session("accounts/a", "s", { store });
  const acks = () => server.frames.map(({ elements: [{ session: { seq, ack } }] }) => [seq, ack]);
  for (const body of ["x", "y"]) await deposit(session, body);
  assert.deepEqual(acks(), [[1, undefined], [2, undefined]]);
  goOn();
  await until(() => store.rows.size === 0, "they are deleted");
  await deposit(session, "z");
  assert.deepEqual(acks().at(-1), [3, 2]);
});
