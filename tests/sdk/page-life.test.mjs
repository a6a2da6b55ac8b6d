// Tests what the SDK does at the events of a page: the network goes and comes back, the page is shown, hidden or left.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { leavePage, page } from "./page-stub.mjs";
import { deposit, hang, lost, outbox, rejection, until } from "./stub.mjs";

afterEach(leavePage);

/** Waits long enough that the SDK would have sent something. */
async function turns() {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setTimeout(resolve, 1));
}

test("offline an outbox keeps its requests and sends nothing, and once online it sends them at once", async (t) => {
  const { offline, online } = page();
  const { semel, server } = await outbox(t, { retryIntervalMs: 3_600_000 });
  await deposit(semel);
  server.each = (call, serve) => (call.path.includes("/b/") && call.n < 3 ? lost() : serve());
  const failed = deposit(semel, "b");
  await until(() => server.attempts.length === 2, "it was sent");
  offline();
  const made = deposit(semel, "c");
  await until(() => semel.getSnapshot().pending === 2, "both are in hand");
  await turns();
  assert.equal(server.attempts.length, 2);
  assert.deepEqual(semel.getSnapshot(), { pending: 2, paused: 0, online: false });
  online();
  assert.deepEqual([(await failed).status, (await made).status], [200, 200]);
  assert.equal(semel.getSnapshot().online, true);
});

test("a page that starts offline sends nothing, not even for the clock", async (t) => {
  const { online } = page({ onLine: false });
  const { semel, server } = await outbox(t);
  assert.equal(semel.getSnapshot().online, false);
  const made = deposit(semel);
  await turns();
  assert.equal(server.calls.length, 0);
  online();
  assert.equal((await made).status, 200);
});

test("offline and online are each told once, even if the page is shown in between", async (t) => {
  const browser = page();
  const { offline, online } = browser;
  const { semel } = await outbox(t);
  const told = [];
  for (const type of ["offline", "online"]) semel.addEventListener(type, ({ type }) => told.push([type, semel.getSnapshot().online]));
  offline();
  browser.window("visibilitychange");
  online();
  browser.window("pageshow");
  assert.deepEqual(told, [["offline", false], ["online", true]]);
});

for (const type of ["pageshow", "visibilitychange", "resume"]) {
  test(`${type}: a request that waits for its interval is sent at once`, async (t) => {
    const browser = page();
    const { semel, server } = await outbox(t, { retryIntervalMs: 3_600_000 });
    await deposit(semel);
    server.each = (call, serve) => (call.n === 2 ? lost() : serve());
    const answer = deposit(semel);
    await until(async () => (await semel.pending())[0]?.attempts === 1 && server.attempts[1]?.endedMs !== undefined, "it has failed");
    await turns();
    assert.equal(server.attempts.length, 2);
    browser.window(type);
    assert.equal((await answer).status, 200);
  });
}

test("a page that becomes hidden does not send a request that waits for its interval", async (t) => {
  const browser = page();
  const { semel, server } = await outbox(t, { retryIntervalMs: 3_600_000 });
  await deposit(semel);
  server.each = (call, serve) => (call.n === 2 ? lost() : serve());
  deposit(semel).catch(() => {});
  await until(async () => (await semel.pending())[0]?.attempts === 1 && server.attempts[1]?.endedMs !== undefined, "it has failed");
  browser.hide();
  browser.window("visibilitychange");
  await turns();
  assert.equal(server.attempts.length, 2);
});

test("a hidden page sends its request once the network is back", async (t) => {
  const browser = page();
  const { semel } = await outbox(t);
  browser.offline();
  const answer = deposit(semel);
  browser.hide();
  browser.online();
  assert.equal((await answer).status, 200);
});

test("on pagehide every attempt under way is sent once more, unchanged and with keepalive", async (t) => {
  const browser = page();
  const { semel, server } = await outbox(t, { headers: { authorization: "Bearer alice" } });
  await deposit(semel);
  const held = [];
  server.each = (call, serve) => (call.kind === "change" && held.length < 2 ? new Promise((_, reject) => held.push(reject)) : serve());
  const answers = [deposit(semel, "b", { body: "one" }), deposit(semel, "c", { body: "two" })];
  await until(() => server.attempts.length === 3, "both are under way");
  browser.window("pagehide");
  assert.equal(server.attempts.length, 5);
  for (const [attempt, again] of [[1, 3], [2, 4]].map((pair) => pair.map((index) => server.attempts[index]))) {
    assert.deepEqual([...again.headers], [...attempt.headers]);
    assert.deepEqual([again.path, again.body, again.method, again.init.keepalive], [attempt.path, attempt.body, "POST", true]);
    assert.ok(!again.init.signal, "no timeout ends it");
  }
  await until(() => server.runs.size === 3, "all have run");
  // The page is shown again, and what it had sent itself is lost. Its callers hear what came of the attempts that were sent once more.
  browser.window("pageshow");
  for (const lose of held) lose(new TypeError("fetch failed"));
  const told = await Promise.all((await Promise.all(answers)).map((answer) => answer.json()));
  assert.deepEqual(told, ["b", "c"].map((account) => ({ ran: 1, path: `/accounts/${account}/deposit` })));
  assert.deepEqual([...server.runs.values()], [1, 1, 1]);
});

test("on pagehide no request for the clock and no attempt without headers is sent, but other attempts are", async (t) => {
  const browser = page();
  const { semel: early, server: asked } = await outbox(t);
  asked.each = () => hang();
  deposit(early).catch(() => {});
  await until(() => asked.calls.length === 1, "the clock is asked for");
  let isSlow = false;
  const { semel, server } = await outbox(t, { headers: () => (isSlow ? hang((isSlow = false)) : {}) });
  await deposit(semel);
  server.each = () => hang();
  isSlow = true;
  for (const account of ["b", "c"]) deposit(semel, account).catch(() => {});
  await until(() => server.attempts.length === 2, "one is under way, and one has no headers yet");
  browser.window("pagehide");
  assert.deepEqual([asked.calls.length, ...server.attempts.map(({ path }) => path)], [1, "/accounts/a/deposit", "/accounts/c/deposit", "/accounts/c/deposit"]);
});

test("a keepalive attempt that is lost causes no unhandled rejection", async (t) => {
  const browser = page();
  const { semel, server } = await outbox(t);
  server.each = (call, serve) => (call.kind !== "change" ? serve() : call.init.keepalive ? lost() : hang());
  deposit(semel).catch(() => {});
  await until(() => server.attempts.length === 1, "it is under way");
  browser.window("pagehide");
  await until(() => server.attempts[1]?.endedMs, "it is lost");
  // A rejection that nobody catches would fail the test.
  await turns();
});

test("keepalive attempts have at most 64 KiB in all, and one that fits is not left out for a larger one", async (t) => {
  const browser = page();
  const { semel, server } = await outbox(t);
  await deposit(semel);
  server.each = () => hang();
  const sizes = { b: 40_000, c: 30_000, d: 25_536, e: 1 };
  for (const [account, size] of Object.entries(sizes)) deposit(semel, account, { body: "x".repeat(size) }).catch(() => {});
  await until(() => server.attempts.length === 5, "all are under way");
  browser.window("pagehide");
  const again = server.attempts.slice(5);
  assert.deepEqual(again.map((call) => call.path), ["/accounts/b/deposit", "/accounts/d/deposit"]);
});

test("pagehide and pageshow send one attempt more, and after close no event of the page has an effect", async (t) => {
  const browser = page();
  const { semel, server } = await outbox(t);
  server.each = (call, serve) => (call.kind === "change" && call.n < 3 ? hang() : serve());
  const answer = deposit(semel);
  answer.catch(() => {});
  await until(() => server.attempts.length === 1, "it is under way");
  browser.window("pagehide");
  browser.window("pageshow");
  assert.equal(server.attempts.length, 2);
  await semel.close();
  assert.equal((await rejection(answer)).code, "closed");
  for (const type of ["pagehide", "online", "offline", "pageshow"]) browser.window(type);
  await turns();
  assert.equal(server.attempts.length, 2);
  assert.equal(semel.getSnapshot().online, true);
});
