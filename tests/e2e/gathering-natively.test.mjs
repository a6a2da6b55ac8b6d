// Which changes of one key go to its object together, and how long each waits. Tested in Node, with the worker's own modules and the test's clock.
// `gathering.test.mjs` has them on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { given, natively } from "./natively.mjs";

test("reads, changes without an id, large ones and those of other keys are not gathered with what is under way", async (t) => {
  globalThis.Cloudflare = { compatibilityFlags: { handle_cross_request_promise_resolution: true } };
  t.after(() => delete globalThis.Cloudflare);
  const { placeOf } = await natively("gathering.js");
  const id = 'idempotency-key:"one"\n';
  const place = ({ key = "a", method = "POST", search = "", lines = id, body = new Uint8Array() } = {}) => placeOf(key, () => ({ askAll: () => new Promise(() => {}) }), [method, "/echo", search, lines, body ?? undefined], Date.now() + 60_000);
  const rest = (1 << 20) - id.length;
  const leave = place()?.leave;
  assert.equal(typeof leave, "function", "the first goes by itself, and is known");
  const alone = { GET: { method: "GET" }, HEAD: { method: "HEAD" }, "no id": { lines: "" }, large: { body: new Uint8Array(1 << 20) }, "large with its path": { body: new Uint8Array(rest - 4) }, "large with its query": { search: "?x", body: new Uint8Array(rest - 6) }, "too large to be read": { body: null } };
  for (const [what, call] of Object.entries(alone)) assert.equal(place(call), undefined, what);
  assert.equal(typeof place({ key: "b" }).leave, "function");
});

test("a group reaches the engine as heads of four parts each, and a body that could not be read as none, an empty one as empty", async () => {
  const { group } = await natively("gathering.js");
  let told;
  const engine = { group: (heads, bodies, numbers) => ((told = [heads, [...bodies], [...numbers]]), []) };
  const attempt = (body) => () => ["POST", "/", "?a", "x:1\n", body, 5, 6];
  group([attempt(new Uint8Array([7])), attempt(undefined), attempt(new Uint8Array())], engine, () => {});
  assert.deepEqual(told, ["POST\0/\0?a\0x:1\n\0".repeat(3), [7], [1, 5, 6, -1, 5, 6, 0, 5, 6]]);
});

/**
 * Changes of one key, in Node, with the time of the test. `place(waitMs)` places one. `asked`: the calls for several changes, each for the test to
 * resolve.
 */
async function placed(t, key) {
  globalThis.Cloudflare = { compatibilityFlags: { handle_cross_request_promise_resolution: true } };
  t.after(() => delete globalThis.Cloudflare);
  // Not every Node has this function.
  Promise.withResolvers ??= () => {
    const its = {};
    its.promise = new Promise((resolve, reject) => Object.assign(its, { resolve, reject }));
    return its;
  };
  const { placeOf } = await natively("gathering.js");
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000_000 });
  const asked = [];
  const askAll = (calls) => new Promise((resolve, reject) => asked.push({ calls, resolve, reject }));
  const place = (waitMs = 60_000) => placeOf(key, () => ({ askAll }), ["POST", "/echo", "", 'idempotency-key:"one"\n', new Uint8Array()], Date.now() + waitMs);
  const pass = async (ms) => {
    for (let turns = 0; turns < 5; turns += 1) {
      await turn();
      t.mock.timers.tick(turns < 4 ? 0 : ms);
    }
    await turn();
  };
  return { place, asked, pass };
}

test("each change in a call waits as long as its own client does, whichever of them came last", async (t) => {
  const { place, asked, pass } = await placed(t, "patient");
  const { leave } = place();
  const [patient, impatient] = [place(50_000).told, place(5_000).told];
  await pass(20_000);
  asked[0].resolve([[[200, "one"], [200, "other"]], 7]);
  assert.deepEqual(await patient, [200, "one", 7]);
  assert.equal(await Promise.race([impatient, turn("told nothing")]), "told nothing", "its request has ended by then");
  leave();
});

test("changes that come while a call of their key is out go together, even after the first change is over", async (t) => {
  const { place, asked, pass } = await placed(t, "over");
  const { leave } = place();
  const first = place().told;
  await pass(0);
  leave();
  const second = [place().told, place().told];
  await pass(0);
  assert.deepEqual(asked.map(({ calls }) => calls.length), [1, 2]);
  asked[0].reject(new Error("gone"));
  await assert.rejects(first, /gone/);
  asked[1].resolve([[[200, "one"]], 7]);
  assert.deepEqual(await Promise.all(second), [[200, "one", 7], undefined], "of the other nothing was done");
  assert.equal(typeof place().leave, "function", "nothing is under way any more");
});

test("a change that ends after its caller's time does not clear what is under way by then", async (t) => {
  const { place, pass } = await placed(t, "late");
  const late = place(1_000);
  await pass(2_000);
  const { leave } = place();
  late.leave();
  assert.equal(typeof place().told?.then, "function", "the second is under way, and the third goes with the next");
  leave();
});

test("a call that does not come back is waited for only until the last of its callers waits no longer", async (t) => {
  const { place, pass } = await placed(t, "gone");
  const ended = [];
  given.waitUntil = (its) => its.then(() => ended.push("it is over"));
  t.after(() => delete given.waitUntil);
  place();
  for (const waitMs of [5_000, 20_000]) place(waitMs);
  await pass(19_000);
  assert.deepEqual(ended, []);
  await pass(2_000);
  assert.deepEqual(ended, ["it is over"]);
});

test("a key is forgotten as soon as nothing of it is under way any more", async (t) => {
  const { place, asked, pass } = await placed(t, "forgotten");
  const { leave } = place();
  const told = place().told;
  await pass(0);
  const forgotten = t.mock.method(Map.prototype, "delete").mock;
  const keys = () => forgotten.calls.filter(({ result }) => result).map(({ arguments: [key] }) => key);
  leave();
  assert.deepEqual(keys(), []);
  asked[0].resolve([[[200, "one"]], 7]);
  await told;
  await turn();
  assert.deepEqual(keys(), ["forgotten"]);
});
