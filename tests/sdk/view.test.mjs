// Tests what an application can show: the events, the snapshot, and who is told of changes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PoisonedError, UnauthorizedError } from "../../sdk/npm/node.js";
import { leavePage, page } from "./page-stub.mjs";
import { Rows, Stub, URL_OF_STUB, clock, deposit, hang, lost, outbox, problem, rejection, until } from "./stub.mjs";

const TYPES = ["attempt", "lost", "refused", "settled", "stalled", "recovered", "offline", "online"];
const url = `${URL_OF_STUB}/accounts/a/deposit`;

/** All events of an outbox from now on, each as its type and detail. */
function heard(semel) {
  const all = [];
  for (const type of TYPES) semel.addEventListener(type, (event) => all.push([type, event.detail]));
  return all;
}

test("each attempt, its loss and the answer are events with the id, method and URL of the request", async (t) => {
  const { semel, server } = await outbox(t);
  // The first attempt runs, but its answer is lost. The second attempt gets a replay.
  server.each = (call, serve) => {
    const answer = serve();
    return call.kind === "change" && call.n === 1 ? lost() : answer;
  };
  const events = heard(semel);
  await deposit(semel, "a", { id: 'x "1" \\' });
  const of = { requestId: 'x "1" \\', method: "POST", url };
  assert.deepEqual(events, [
    ["attempt", of],
    ["lost", { ...of, error: new TypeError("fetch failed") }],
    ["attempt", of],
    ["settled", { ...of, status: 200, error: undefined }],
  ]);
});

test("a refused attempt is an event with its code, retried or not, and that code is the cause of a gave-up error", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 60_000 });
  const later = clock(t);
  server.each = (call, serve) => (call.kind === "change" ? problem(500, "rolled-back", { executed: "no" }) : serve());
  const events = heard(semel);
  const givenUp = rejection(deposit(semel, "a", { id: "1" }));
  await until(() => events.some(([type]) => type === "refused"), "it is told");
  later(60_000);
  const { code, cause } = await givenUp;
  const of = { requestId: "1", method: "POST", url };
  assert.deepEqual(events.slice(0, 2), [["attempt", of], ["refused", { ...of, status: 500, code: "rolled-back" }]]);
  assert.deepEqual([code, cause], ["gave-up", "rolled-back"]);
  server.each = (call, serve) => (call.kind === "change" ? problem(410, "poisoned", { executed: "no", retry: "never" }) : serve());
  events.splice(0);
  later(60_000);
  await until(() => events.some(([type]) => type === "recovered"), "it is over");
  assert.deepEqual(events.map(([type, { code }]) => [type, code]), [["attempt", undefined], ["refused", "poisoned"], ["recovered", undefined]]);
});

test("a late answer to a timed-out attempt is no event, and a page that goes does not send the request again", async (t) => {
  const browser = page();
  t.after(leavePage);
  const server = new Stub();
  let answer;
  server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? new Promise((resolve) => (answer = () => resolve(problem(500, "rolled-back", { executed: "no" })))) : serve());
  // This `fetch` ignores its signal.
  const fetch = (url, init) => server.fetch(url, { ...init, signal: undefined });
  const { semel } = await outbox(t, { server, fetch, attemptTimeoutMs: 100 });
  const events = heard(semel);
  assert.equal((await deposit(semel)).status, 200);
  browser.window("pagehide");
  answer();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(events.map(([type]) => type), ["attempt", "attempt", "settled"]);
  assert.equal(server.attempts.length, 2);
});

test("an attempt that gets no answer in its time is a lost event", async (t) => {
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 100 });
  server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? hang() : serve());
  const events = heard(semel);
  await deposit(semel, "a", { id: "1" });
  const all = events.filter(([type]) => type === "lost");
  assert.deepEqual(all.map(([, { requestId, url, error }]) => [requestId, url, error.name]), [["1", url, "AbortError"]]);
});

for (const [whose, stranger] of Object.entries({
  "another server": () => new Response('{"made":true}', { headers: { "content-type": "application/json" } }),
  "a proxy that knows no such site": () => new Response("<h1>404</h1>", { status: 404 }),
  "a redirect": () => new Response(null, { status: 302, headers: { location: "https://elsewhere.test/" } }),
  "a server that is cut off before the body": () => new Response(null, { headers: { "semel-status": "executed", "content-length": "34" } }),
})) {
  test(`an answer that is not Semel's is a lost event, and the cause of a gave-up error: that of ${whose}`, async (t) => {
    const { semel, server } = await outbox(t, { giveUpAfterMs: 60_000 });
    const later = clock(t);
    server.each = (call, serve) => (call.kind === "change" ? stranger() : serve());
    const events = heard(semel);
    const givenUp = rejection(deposit(semel, "a", { id: "1" }));
    await until(() => events.some(([type]) => type === "lost"), "it is told");
    later(60_000);
    const error = await givenUp;
    const [, told] = events.find(([type]) => type === "lost");
    assert.deepEqual(told, { requestId: "1", method: "POST", url, error: new TypeError("no answer of Semel's") });
    assert.deepEqual([error.code, error.cause], ["gave-up", new TypeError("no answer of Semel's")]);
  });
}

test("a failing store is a lost event and the cause of giving up before an attempt, but no event for an answer's row", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store, giveUpAfterMs: 60_000 });
  const later = clock(t);
  const full = new Error("the quota is used up");
  let isFull = false;
  store.before = async () => {
    if (isFull) throw full;
  };
  server.each = (call, serve) => {
    if (call.kind !== "change") return serve();
    isFull = call.n === 1;
    return isFull ? lost() : serve();
  };
  const events = heard(semel);
  const givenUp = rejection(deposit(semel, "a", { id: "1" }));
  await until(() => events.filter(([type]) => type === "lost").length > 2, "it is told each time");
  const of = { requestId: "1", method: "POST", url };
  assert.deepEqual(events.slice(0, 3), [["attempt", of], ["lost", { ...of, error: new TypeError("fetch failed") }], ["lost", { ...of, error: full }]]);
  later(60_000);
  const { code, cause } = await givenUp;
  assert.deepEqual([code, cause], ["gave-up", full]);
  isFull = false;
  await until(() => events.some(([type]) => type === "recovered"), "it goes on");
  isFull = true;
  const told = events.length;
  const before = store.before;
  let tries = 0;
  store.before = (id) => ((tries += 1), before(id));
  semel.onrecovered = () => {};
  await until(() => tries > 1, "its row is tried again");
  assert.equal(events.length, told);
});

test("a final refusal is a refused event, and a lost event while the store can't say whether another tab has an outcome", async (t) => {
  const store = new Rows();
  const { semel, server } = await outbox(t, { store });
  const broken = new Error("the store is broken");
  let isBroken = false;
  store.before = async () => {
    if (isBroken) throw broken;
  };
  server.each = (call, serve) => {
    if (call.kind !== "change") return serve();
    isBroken = call.n === 1;
    return problem(410, "retention-expired", { executed: "no", retry: "never" });
  };
  const events = heard(semel);
  const settled = rejection(deposit(semel, "a", { id: "1" }));
  await until(() => events.length > 2, "it is told");
  isBroken = false;
  assert.equal((await settled).code, "retention-expired");
  const of = { requestId: "1", method: "POST", url };
  const refused = ["refused", { ...of, status: 410, code: "retention-expired" }];
  assert.deepEqual(events.slice(0, 3), [["attempt", of], refused, ["lost", { ...of, error: broken }]]);
  assert.deepEqual(events.slice(-3).map(([type]) => type), ["attempt", "refused", "settled"]);
});

test("a lost request for the clock is a lost event without a request id", async (t) => {
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "health" && call.n === 1 ? lost() : serve());
  const { semel } = await outbox(t, { server });
  const events = heard(semel);
  await deposit(semel);
  const [, of] = events.find(([type]) => type === "lost");
  assert.deepEqual(of, { requestId: undefined, method: "GET", url: `${URL_OF_STUB}/semel/v1/health`, error: new TypeError("fetch failed") });
});

test("the events of a pause and of a recovered failure carry their errors", async (t) => {
  const store = new Rows();
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "change" ? problem(401, "unauthorized", { executed: "no", retry: "after-fix" }) : serve());
  const { semel } = await outbox(t, { server, store, onpaused() {}, giveUpAfterMs: 0 });
  const events = heard(semel);
  await rejection(deposit(semel));
  await until(() => events.some(([type]) => type === "stalled"), "it is told");
  server.each = (call, serve) => (call.kind === "change" ? problem(410, "poisoned", { executed: "no", retry: "never" }) : serve());
  semel.resume();
  await until(() => events.some(([type]) => type === "recovered"), "it is answered");
  const [, stalled] = events.find(([type]) => type === "stalled");
  const [, recovered] = events.find(([type]) => type === "recovered");
  assert.ok(stalled.error instanceof UnauthorizedError && recovered.error instanceof PoisonedError);
  assert.deepEqual([stalled.url, recovered.url, recovered.status, stalled.requestId], [url, url, undefined, recovered.requestId]);
  assert.ok(!events.some(([type]) => type === "settled"), "nobody waited");
});

test("requests for the clock and cancellations are no attempt events", async (t) => {
  const { semel, server } = await outbox(t, { attemptTimeoutMs: 100 });
  server.each = (call, serve) => (call.kind === "change" && call.deadline > server.now() ? hang() : serve());
  const events = heard(semel);
  const giveUp = new AbortController();
  const answer = rejection(deposit(semel, "a", { signal: giveUp.signal }));
  await until(() => server.attempts.length > 0, "it was sent");
  giveUp.abort();
  await answer;
  assert.deepEqual([server.of("health").length, server.of("cancel").length], [1, 1]);
  assert.equal(events.filter(([type]) => type === "attempt").length, server.attempts.length);
});

test("a snapshot counts what waits in this tab, is frozen, and is the same object until something changes", async (t) => {
  const server = new Stub();
  let refused = 1;
  const waiting = [];
  server.each = (call, serve) => {
    if (call.kind !== "change") return serve();
    if (call.path.includes("/b/") && refused-- > 0) return problem(400, "key-invalid", { retry: "after-fix" });
    return new Promise((resolve) => waiting.push(() => resolve(serve())));
  };
  const { semel } = await outbox(t, { server, onpaused() {} });
  const shown = [];
  const stop = semel.subscribe((snapshot) => shown.push(snapshot));
  assert.deepEqual(shown, [{ pending: 0, paused: 0, online: true }]);
  assert.equal(shown[0], semel.getSnapshot());
  const answers = [deposit(semel, "a"), deposit(semel, "b"), deposit(semel, "c")];
  await until(() => semel.getSnapshot().paused === 1, "one is paused");
  const paused = semel.getSnapshot();
  assert.deepEqual(paused, { pending: 3, paused: 1, online: true });
  assert.ok(Object.isFrozen(paused) && paused === semel.getSnapshot());
  semel.resume();
  await until(() => waiting.length === 3, "all are under way");
  for (const answer of waiting) answer();
  await Promise.all(answers);
  await until(() => shown.at(-1).pending === 0, "all are answered");
  assert.deepEqual(paused, { pending: 3, paused: 1, online: true });
  for (const [index, snapshot] of shown.slice(1).entries()) assert.notDeepEqual(snapshot, shown[index], "only changes are told");
  stop();
  const told = shown.length;
  server.each = (_call, serve) => serve();
  await deposit(semel);
  assert.equal(shown.length, told);
});

test("a subscriber may make a request, subscribe and unsubscribe as it is told", async (t) => {
  const { semel, server } = await outbox(t);
  let made;
  const stops = [];
  stops.push(
    semel.subscribe(({ pending }) => {
      if (pending === 1 && !made) {
        made = deposit(semel, "b");
        stops.push(semel.subscribe(() => {}));
        stops[0]();
      }
    }),
  );
  await deposit(semel, "a");
  assert.equal((await made).status, 200);
  assert.equal(server.runs.size, 2);
  for (const stop of stops) stop();
});

test("a subscriber that has stopped is told nothing more, also if another stops it as both are about to be told", async (t) => {
  const { semel } = await outbox(t);
  const told = [];
  let stop;
  semel.subscribe(({ pending }) => pending && stop());
  stop = semel.subscribe(({ pending }) => told.push(pending));
  assert.equal((await deposit(semel)).status, 200);
  assert.deepEqual(told, [0]);
});

test("a subscriber that throws does not keep others from being told, and its error is reported", async (t) => {
  const { semel } = await outbox(t);
  const told = [];
  semel.subscribe(({ pending }) => {
    if (pending > 0) throw new Error("a listener's own");
  });
  semel.subscribe(({ pending }) => told.push(pending));
  const { queueMicrotask } = globalThis;
  const thrown = [];
  t.mock.method(globalThis, "queueMicrotask", (act) =>
    queueMicrotask(() => {
      try {
        act();
      } catch ({ message }) {
        thrown.push(message);
      }
    }),
  );
  await deposit(semel);
  assert.deepEqual([told.includes(1), thrown], [true, ["a listener's own"]]);
});

test("subscribe and getSnapshot need no receiver, as React calls them", async (t) => {
  const { semel } = await outbox(t);
  const { subscribe, getSnapshot } = semel;
  const seen = [];
  subscribe(() => seen.push(getSnapshot().pending));
  await deposit(semel);
  assert.deepEqual([seen[0], Math.max(...seen)], [0, 1]);
});
