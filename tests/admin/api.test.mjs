// Tests the client of the administrator's API (`sdk/admin/api.js`): a change happens once, whatever is lost, and no error says more than is known.

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { Admin, AdminError, earlierChange, instantOf, newChange } from "../../sdk/admin/api.js";
import { explain } from "../../sdk/admin/advice.js";
import { TOKEN, USERS_TOKEN, startFake } from "./fake.mjs";
import { EMPTY, HEAVY, NOW_MS, SMALL, idOf, numberOf, stateOf } from "./world.mjs";

const LIMIT = { timeout: 20_000 };

const fake = await startFake(after);
const of = (options) => new Admin({ url: fake.url, token: TOKEN, changesForMs: 5_000, readsForMs: 5_000, ...options });
const idIn = (state, from = 0) => {
  for (let n = from; ; n += 1) if (stateOf(n) === state) return idOf(numberOf(SMALL), n);
};
/** The error that a promise rejects with. */
const errorOf = (promise) => promise.then(() => assert.fail("it ended well"), (error) => error);

test("a change whose request and answer are lost is sent again under the same id and first-sent, and made once", LIMIT, async () => {
  const [calls, done] = [fake.calls.length, fake.done.length];
  fake.faults.push({ on: "change", kind: "lose-request" }, { on: "change", kind: "lose-answer" });
  const told = [];
  const result = await of({ onretry: ({ code }) => told.push(code) }).cancel(SMALL, "never-seen", newChange());
  assert.deepEqual(result, { state: "cancelled" });
  const changes = fake.calls.slice(calls).filter(({ method }) => method === "POST");
  assert.equal(changes.length, 3);
  assert.equal(new Set(changes.map(({ id, firstSent }) => `${id} ${firstSent}`)).size, 1);
  assert.equal(changes[0].firstSent, `@${NOW_MS / 1000}`, "the server's clock dates it");
  assert.deepEqual(fake.done.slice(done), [`POST keys/${SMALL}/cancel {"id":"never-seen"}`]);
  assert.deepEqual(told, ["no-network", "no-network"]);
});

test("the token is sent with changes and acknowledgements, and not with the request for the clock", LIMIT, async () => {
  const calls = fake.calls.length;
  await of().cancel(SMALL, "never-seen-with-a-token", newChange());
  const sent = fake.calls.slice(calls).map(({ method, path, authorization }) => [method, path.endsWith("/health"), authorization]);
  assert.deepEqual(sent, [["GET", true, undefined], ["POST", false, `Bearer ${TOKEN}`], ["GET", false, `Bearer ${TOKEN}`]]);
});

test("a change gets a random id where crypto.randomUUID is missing, as on a page over plain HTTP", (t) => {
  Object.defineProperty(crypto, "randomUUID", { value: undefined, configurable: true });
  t.after(() => delete crypto.randomUUID);
  const [one, other] = [newChange().id, newChange().id];
  for (const id of [one, other]) assert.match(id, /^[0-9a-f]{32}$/);
  assert.notEqual(one, other);
});

test("a change that is answered is acknowledged until the latest deadline of its attempts", LIMIT, async () => {
  for (const change of [(admin) => admin.cancel(SMALL, "never-seen-either", newChange()), (admin) => admin.deleteRecord(SMALL, idIn("executed", 40), newChange())]) {
    const calls = fake.calls.length;
    fake.faults.push({ on: "change", kind: "lose-answer" });
    await change(of());
    const attempts = fake.calls.slice(calls).filter(({ method }) => method !== "GET");
    const deadlines = attempts.map(({ deadline }) => Number(deadline));
    assert.ok(deadlines.length === 2 && deadlines[0] > NOW_MS && deadlines[1] >= deadlines[0], `${deadlines}`);
    assert.equal(fake.calls.at(-1).ack, `${attempts[0].id};until=${deadlines[1]}`);
  }
  // A lost acknowledgement doesn't undo the change. A change without an answer is not acknowledged.
  const calls = fake.calls.length;
  fake.faults.push({ on: "read", kind: "lose-request" });
  assert.deepEqual(await of().cancel(SMALL, "never-seen-at-all", newChange()), { state: "cancelled" });
  fake.faults.push({ on: "change", kind: 401, code: "unauthorized" });
  await errorOf(of().cancel(SMALL, "nor-this", newChange()));
  assert.equal(fake.calls.slice(calls).filter(({ ack }) => ack !== undefined).length, 1);
});

test("an unavailable or in-flight answer is tried again, and a refusal is not", LIMIT, async () => {
  fake.faults.push({ on: "read", kind: 503, code: "unavailable" });
  assert.equal((await of().key(SMALL)).key, SMALL);
  fake.faults.push({ on: "read", kind: 409, code: "in-flight" });
  assert.equal((await of().key(SMALL)).key, SMALL);
  for (const [token, code, status] of [["wrong", "unauthorized", 401], [USERS_TOKEN, "forbidden", 403]]) {
    const calls = fake.calls.length;
    const error = await errorOf(of({ token }).deleteKey(HEAVY, newChange()));
    assert.deepEqual([error.code, error.status, error.executed], [code, status, "no"]);
    assert.equal(fake.calls.length, calls + 2, "the clock, and one attempt");
  }
});

test("a refused change is unknown if an earlier attempt was lost, and not made otherwise", LIMIT, async () => {
  const admin = of();
  await admin.key(SMALL);
  fake.faults.push({ on: "change", kind: "lose-answer" }, { on: "change", kind: 401, code: "unauthorized" });
  const error = await errorOf(admin.deleteRecord(SMALL, idIn("executed"), newChange()));
  assert.deepEqual([error.code, error.executed], ["unauthorized", "unknown"]);
  assert.match(explain(error, true).outcome, /can't be known/);
  fake.faults.push({ on: "change", kind: 401, code: "unauthorized" });
  const first = await errorOf(admin.deleteRecord(SMALL, idIn("executed"), newChange()));
  assert.equal(explain(first, true).outcome, "Nothing was changed.");
});

test("an acknowledged id is a definitive refusal, not executed, also after a lost attempt", LIMIT, async () => {
  fake.faults.push({ on: "change", kind: "lose-request" });
  const error = await errorOf(of().cancel(SMALL, idIn("acknowledged"), newChange()));
  assert.deepEqual([error.code, error.executed, error.isDefinitive], ["acknowledged", "no", true]);
});

test("not-seen after a lost attempt is unknown, because the lost attempt may still arrive", LIMIT, async () => {
  const change = newChange();
  const sent = [];
  // A network may hold the first attempt back like this.
  const holding = async (url, init) => {
    if (init.method === "DELETE" && sent.push([url, init]) === 1) throw new TypeError("fetch failed");
    return fetch(url, init);
  };
  const error = await errorOf(of({ fetch: holding }).deleteRecord(SMALL, "comes-late", change));
  assert.deepEqual([sent.length, error.code, error.executed, error.isDefinitive], [2, "not-seen", "unknown", true]);
  assert.equal(explain(error, true).outcome, "It can't be known whether the change was made.");
  fake.doubt(SMALL, "comes-late");
  const [[url, init]] = sent;
  assert.equal((await fetch(url, { ...init, signal: undefined })).headers.get("semel-status"), "executed");
});

test("a refusal about the named request means that the new change was not made", LIMIT, async () => {
  fake.doubt(SMALL, "cancelled-in-doubt");
  const refused = {
    "not-seen": [of().deleteRecord(SMALL, "never-here", newChange()), of().resolve(SMALL, "never-here", undefined, newChange())],
    "outcome-unknown": [of().cancel(SMALL, "cancelled-in-doubt", newChange())],
  };
  for (const [code, changes] of Object.entries(refused)) {
    for (const change of changes) {
      const error = await errorOf(change);
      assert.deepEqual([error.code, error.executed], [code, "no"]);
    }
  }
});

test("a refused or unreachable attempt of an earlier change leaves it unknown", LIMIT, async () => {
  const earlier = () => earlierChange("0f2b1c34-0000-4000-8000-000000000000", Math.floor(NOW_MS / 1000));
  fake.faults.push({ on: "change", kind: 401, code: "unauthorized" });
  assert.equal((await errorOf(of().deleteRecord(SMALL, idIn("executed"), earlier()))).executed, "unknown");
  const unreachable = () => Promise.reject(new TypeError("fetch failed"));
  const error = await errorOf(of({ changesForMs: 0, fetch: unreachable }).deleteRecord(SMALL, idIn("executed"), earlier()));
  assert.deepEqual([error.code, error.executed], ["no-network", "unknown"]);
});

test("a refusal as over, running or in doubt leaves an earlier change unknown, and means no for a new one", LIMIT, async () => {
  const over = ["acknowledged", "outcome-expired", "outcome-unknown", "in-flight"];
  for (const code of over) {
    for (const [change, executed] of [[newChange(), "no"], [earlierChange("0f2b1c34-0000-4000-8000-000000000001", Math.floor(NOW_MS / 1000)), "unknown"]]) {
      fake.faults.push({ on: "change", kind: 410, code });
      const error = await errorOf(of({ changesForMs: 0 }).cancel(SMALL, idIn("executed"), change));
      assert.deepEqual([error.code, error.executed], [code, executed]);
      assert.equal(/or about this change, which may then have been made already/.test(explain(error, true).what), executed === "unknown");
    }
  }
});

test("not-seen leaves an earlier change unknown, and no advice is given to send it again", LIMIT, async () => {
  const error = await errorOf(of().deleteRecord(SMALL, "never-here", earlierChange("0f2b1c34-0000-4000-8000-000000000001", Math.floor(NOW_MS / 1000))));
  assert.deepEqual([error.code, error.executed], ["not-seen", "unknown"]);
  const { what, outcome } = explain(error, true);
  assert.deepEqual([what, outcome], ["This key knows no such id.", "It can't be known whether the change was made."]);
});

test("an earlier change that is acknowledged is unknown and definitive, and no advice is given to send it again", LIMIT, async () => {
  const change = newChange();
  await of().deleteRecord(SMALL, idIn("executed", 80), change);
  const error = await errorOf(of().deleteRecord(SMALL, idIn("executed", 80), earlierChange(change.id, change.firstSent)));
  assert.deepEqual([error.code, error.isDefinitive], ["acknowledged", true]);
  assert.equal(explain(error, true).outcome, "It can't be known whether the change was made.");
});

test("a new change that the key refuses as forgotten was not made, and a lost or earlier one is unknown", LIMIT, async () => {
  const headers = { "semel-now": String(NOW_MS) };
  const problem = { code: "forgotten", title: "an administrator forgot ids of that age", executed: "unknown", retry: "never" };
  const answers = [];
  const fetch = async (_, { method }) => {
    if (method === "GET") return Response.json({}, { headers: { ...headers, "semel-status": "read" } });
    const answer = answers.shift();
    if (answer === undefined) return Response.json(problem, { status: 410, headers: { ...headers, "semel-status": problem.code } });
    throw answer;
  };
  const soon = await errorOf(of({ fetch }).deleteKey(SMALL, newChange()));
  assert.deepEqual([soon.code, soon.executed], ["forgotten", "no"]);
  assert.deepEqual(explain(soon, true), { what: "The key was deleted a moment ago, or was just told to forget. It refuses what was asked for before that.", advice: "Try again in a moment.", outcome: "Nothing was changed." });
  // Here an earlier attempt may have done what the key now refuses.
  answers.push(new TypeError("fetch failed"));
  const lost = await errorOf(of({ fetch }).deleteKey(SMALL, newChange()));
  const earlier = await errorOf(of({ fetch }).deleteKey(SMALL, earlierChange("a", NOW_MS / 1000)));
  for (const error of [lost, earlier]) {
    assert.deepEqual([error.code, error.executed], ["forgotten", "unknown"]);
    assert.equal(explain(error, true).outcome, "It can't be known whether the change was made.");
  }
});

test("a change that is outside the window is sent again with first-sent by the clock of its key", LIMIT, async () => {
  const aheadMs = 2 * 86_400_000;
  const sent = [];
  const fetch = async (url, { method, headers }) => {
    const nowMs = url.endsWith("/health") ? NOW_MS : NOW_MS + aheadMs;
    const answer = (status, semel, body) => Response.json(body, { status, headers: { "semel-now": String(nowMs), "semel-status": semel } });
    if (method === "GET") return answer(200, "read", {});
    sent.push([headers["idempotency-key"], Number(headers["semel-first-sent"].slice(1)) * 1000]);
    return sent.at(-1)[1] < nowMs - 86_400_000 ? answer(412, "outside-window", { code: "outside-window", executed: "unknown", retry: "never" }) : answer(200, "executed", { state: "deleted" });
  };
  const change = newChange();
  assert.deepEqual(await of({ fetch }).deleteKey(SMALL, change), { state: "deleted" });
  const id = JSON.stringify(change.id);
  assert.deepEqual(sent.map(([id, firstMs]) => [id, Math.round((firstMs - NOW_MS) / 60_000)]), [[id, 0], [id, aheadMs / 60_000]]);
});

test("a server that can't be reached is tried until the time is over, and nothing was changed", LIMIT, async () => {
  const gone = createServer();
  await new Promise((resolve) => gone.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${gone.address().port}`;
  await new Promise((resolve) => gone.close(resolve));
  let retries = 0;
  const error = await errorOf(of({ url, changesForMs: 1_500, onretry: () => (retries += 1) }).deleteKey(SMALL, newChange()));
  assert.deepEqual([error.code, error.executed, retries], ["no-network", "no", 1]);
});

test("an answer that is not Semel's is no-answer, whatever its status", LIMIT, async (t) => {
  const portal = createServer((_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<h1>Sign in to the hotel</h1>"));
  await new Promise((resolve) => portal.listen(0, "127.0.0.1", resolve));
  t.after(() => portal.close());
  const error = await errorOf(of({ url: `http://127.0.0.1:${portal.address().port}`, readsForMs: 0 }).keys());
  assert.ok(error instanceof AdminError);
  assert.deepEqual([error.code, error.status], ["no-answer", 200]);
});

test("an aborted read rejects with AbortError", LIMIT, async (t) => {
  let go;
  fake.faults.push({ on: "read", kind: "hold", until: new Promise((resolve) => (go = resolve)) });
  t.after(() => go());
  const stop = new AbortController();
  const asked = of().key(SMALL, stop.signal);
  stop.abort();
  assert.equal((await errorOf(asked)).name, "AbortError");
});

/** Stops all timers. The function that this returns advances them, once everything that needs no timer has happened. */
function timers(t) {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  return async (ms) => {
    for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    t.mock.timers.tick(ms);
    for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  };
}

test("an attempt that times out rejects with no-answer, and says so", LIMIT, async (t) => {
  const pass = timers(t);
  const fetch = (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  const asked = errorOf(of({ fetch, readsForMs: 0 }).key(SMALL));
  await pass(10_000);
  const { code, message } = await asked;
  assert.deepEqual([code, message], ["no-answer", "The server did not answer in time."]);
});

test("a rate-limited read is tried again after Retry-After, at most 30 s; an abort ends the wait", LIMIT, async (t) => {
  const pass = timers(t);
  const [stop, waits] = [new AbortController(), ["2", "3600", "60"]];
  let calls = 0;
  const fetch = async () => Response.json({ code: "rate-limited" }, { status: 429, headers: { "semel-status": "rate-limited", "retry-after": waits[calls++] } });
  const asked = errorOf(of({ fetch, readsForMs: 120_000 }).key(SMALL, stop.signal));
  for (const [ms, attempts] of [[1_999, 1], [1, 2], [29_999, 2], [1, 3]]) {
    await pass(ms);
    assert.equal(calls, attempts);
  }
  stop.abort();
  assert.equal((await asked).name, "AbortError");
  assert.deepEqual(getEventListeners(stop.signal, "abort"), []);
});

test("requests follow no redirect, use no cache and send no cookies", LIMIT, async () => {
  const seen = new Set();
  const asking = (url, init) => fetch(url, (({ redirect, cache, credentials }) => (seen.add([redirect, cache, credentials].join()), init))(init));
  await of({ fetch: asking }).cancel(SMALL, "never-redirected", newChange());
  assert.deepEqual([...seen], ["manual,no-store,omit"]);
});

test("an empty or dotted key or id is refused as key-invalid before anything is sent", LIMIT, async () => {
  const calls = fake.calls.length;
  for (const name of ["", ".", ".."]) {
    for (const asked of [of().deleteRecord(SMALL, name, newChange()), of().deleteKey(name, newChange()), of().record(SMALL, name), of().key(name)]) {
      const error = await errorOf(asked);
      assert.deepEqual([error.code, error.executed], ["key-invalid", "no"]);
    }
  }
  assert.equal(fake.calls.length, calls);
  assert.equal((await of().key(EMPTY)).records, 0);
});

test("an instant is an ISO date or an age before the server's clock, and nothing else", () => {
  const now = Date.UTC(2026, 10, 21, 12) + 999;
  for (const [text, iso] of [["30d", "2026-10-22T12:00:00Z"], ["2w", "2026-11-07T12:00:00Z"], ["90m", "2026-11-21T10:30:00Z"], ["0s", "2026-11-21T12:00:00Z"], [" 12h ", "2026-11-21T00:00:00Z"], ["2026-10-22", "2026-10-22T00:00:00Z"], ["2026-10-22T08:00:00+02:00", "2026-10-22T06:00:00Z"]]) {
    assert.equal(instantOf(text, now), Date.parse(iso) / 1000, text);
  }
  for (const text of ["", "x", "30", "d", "30y", "-1d", "1.5d", "2026-13-01", "2026-02-31", "2026-04-31T12:00Z", "2026-06-00", "2026-10", "tomorrow", "1795262400", "30d ago", "99999d", "999999999w", "1969-12-31"]) assert.equal(instantOf(text, now), undefined, text);
});
