// Tests the SDK on IndexedDB, in Chromium, against the stub of a Worker.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { browse } from "../e2e/browser.mjs";
import { SessionStub } from "./session-stub.mjs";
import { Stub, URL_OF_STUB, lost, until } from "./stub.mjs";

const LIMIT = { timeout: 180_000 };
const REQUESTS_MAX = 1_000;
const browser = await browse(after, { page: fileURLToPath(new URL("page", import.meta.url)) });

let identities = 0;

/** An identity with its own database, a stub, and a function that opens tabs whose outbox sends to the stub. */
function world(t, server = new Stub()) {
  identities += 1;
  const identity = `outbox-${identities}`;
  /** The number of the tab that sent each call, in the order of the calls. */
  const senders = [];
  const serve = async (number, { url, method, headers, body }) => {
    senders.push(number);
    try {
      const answer = await server.fetch(url, { method, headers, ...(body === undefined ? {} : { body }) });
      return { status: answer.status, headers: [...answer.headers], body: (await answer.text()) || null };
    } catch {
      return null;
    }
  };
  let tabs = 0;
  const tab = async (options = {}) => {
    const opened = await browser.tab();
    t.after(() => opened.close());
    await opened.waitForFunction(() => window.lab);
    const number = (tabs += 1);
    await opened.exposeFunction("serve", (call) => serve(number, call));
    const open = () =>
      opened.evaluate(async (options) => {
        window.answers = [];
        window.recovered = [];
        const onrecovered = ({ requestId, response }) => void recovered.push([requestId, response.status]);
        window.semel = await lab.outbox({ onrecovered, ...options });
        return undefined;
      }, { identity, ...options });
    return Object.assign(opened, { open });
  };
  return { identity, name: `semel ${URL_OF_STUB} ${identity}`, server, senders, tab };
}

/** Begins deposits, and doesn't wait for their answers. */
const begin = (tab, count = 1) =>
  tab.evaluate((count) => {
    for (let n = 0; n < count; n += 1) semel.fetch("/accounts/a/deposit", { method: "POST", body: "5" }).then(({ status }) => answers.push(status), ({ code }) => answers.push(code));
  }, count);
const pending = (tab) => tab.evaluate(() => semel.pending());
const answers = (tab) => tab.evaluate(() => answers);
const recovered = (tab) => tab.evaluate(() => recovered);
/** The ids that have a stored row. */
const rows = (tab, name) => tab.evaluate(async (name) => {
  const store = await lab.open(name, "relaxed");
  const rows = await store.load();
  await store.close();
  return rows.map(([id]) => id);
}, name);
const losing = (call, serve) => (call.kind === "change" ? lost() : serve());

test("the row of a request stays until the next request has acknowledged it", LIMIT, async (t) => {
  const { server, name, tab } = world(t);
  const own = await tab();
  await own.open();
  server.each = (call, serve) => (call.kind === "change" && call.n < 3 ? lost() : serve());
  await begin(own);
  await until(async () => (await answers(own)).length === 1, "it is answered");
  const [id] = await rows(own, name);
  assert.deepEqual(server.attempts.map((call) => call.id), [id, id, id]);
  await begin(own);
  await until(() => server.attempts.length === 4, "the next is sent");
  assert.deepEqual(server.attempts[3].acks, [[id, Math.max(...server.attempts.slice(0, 3).map(({ deadline }) => deadline))]]);
  await until(async () => !(await rows(own, name)).includes(id), "the acknowledged row has left");
  assert.deepEqual(await answers(own), [200, 200]);
});

test("calls one after another take one transaction each, which also settles the call before", LIMIT, async (t) => {
  const { name, tab } = world(t);
  const own = await tab();
  await own.open();
  const seen = await own.evaluate(async (name) => {
    const call = async () => (await semel.fetch("/accounts/a/deposit", { method: "POST", body: "5" })).text();
    // The first call waits for the server's clock.
    await call();
    const { wait } = lab.holdTimers();
    lab.watch(name);
    for (let n = 0; n < 10; n += 1) await call();
    const seen = lab.unwatch();
    wait();
    return seen;
  }, name);
  const count = (mode) => seen.filter((each) => each === `rows ${mode} strict`).length;
  // Each time the outbox looks for rows that other tabs left, it first begins the transactions that it held back.
  assert.ok(count("readwrite") >= 10 && count("readwrite") - count("readonly") <= 11, String(seen));
});

test("of two tabs that open at once only one takes over the request of a closed tab, under its id", LIMIT, async (t) => {
  const { server, senders, tab } = world(t);
  const gone = await tab();
  await gone.open();
  server.each = losing;
  await begin(gone);
  await until(() => server.attempts.length >= 3, "it is tried");
  await gone.close();
  const others = [await tab(), await tab()];
  const tried = server.calls.length;
  const ids = new Set(server.attempts.map(({ id }) => id));
  await Promise.all(others.map((other) => other.open()));
  await until(() => server.calls.slice(tried).filter(({ kind }) => kind === "change").length >= 4, "it is taken over");
  const from = new Set(senders.slice(tried).filter((_, at) => server.calls[tried + at].kind === "change"));
  assert.equal(from.size, 1, "both have sent it");
  server.each = (_, serve) => serve();
  await until(async () => (await Promise.all(others.map(recovered))).flat().length > 0, "it is recovered");
  assert.deepEqual((await Promise.all(others.map(recovered))).flat(), [...ids].map((id) => [id, 200]));
  assert.deepEqual([...server.runs.values()], [1]);
});

test("a request of a living tab is left to it, and taken over once its outbox is closed", LIMIT, async (t) => {
  const { server, senders, tab } = world(t);
  const [own, other] = [await tab(), await tab()];
  await own.open();
  server.each = losing;
  await begin(own);
  await until(() => server.attempts.length >= 1, "it is tried");
  await other.open();
  assert.deepEqual((await pending(other)).map(({ state }) => state), ["elsewhere"]);
  const tried = server.attempts.length;
  await until(() => server.attempts.length > tried + 3, "it goes on");
  assert.deepEqual([...new Set(senders)], [1]);
  await own.evaluate(() => semel.close());
  server.each = (_, serve) => serve();
  await until(async () => (await recovered(other)).length === 1, "it is recovered");
  assert.deepEqual(await answers(own), ["closed"]);
});

test("a connection that is closed under the outbox costs a retry and no answer, and the request runs once", LIMIT, async (t) => {
  const { server, name, tab } = world(t);
  const own = await tab();
  await own.open();
  await own.evaluate((name) => lab.watch(name), name);
  server.each = losing;
  await begin(own);
  await until(() => server.attempts.length >= 2, "it is tried");
  await own.evaluate(() => lab.sever());
  const tried = server.attempts.length;
  await until(() => server.attempts.length > tried + 2, "it goes on");
  server.each = (_, serve) => serve();
  await until(async () => (await answers(own)).length === 1, "it is answered");
  assert.deepEqual([await answers(own), [...server.runs.values()]], [[200], [1]]);
});

test("every transaction of a session until its close is strict, even if its outbox is relaxed", LIMIT, async (t) => {
  const { identity, server, tab } = world(t, new SessionStub());
  const own = await tab({ durability: "relaxed" });
  await own.open();
  const seen = await own.evaluate(async (name) => {
    lab.watch(name);
    const session = await semel.session("accounts/a", "s");
    await session.fetch("/accounts/a/deposit", { method: "POST", body: "5" });
    await session.close();
    return lab.unwatch();
  }, `semel sessions ${URL_OF_STUB} ${identity}`);
  assert.deepEqual([server.effects, [...new Set(seen)].sort()], [["5"], ["rows readonly strict", "rows readwrite strict"]]);
});

test("a tab that joined a withdrawn call is told outcome-lost, not the answer to a new call under the same id", LIMIT, async (t) => {
  const { server, name, tab } = world(t);
  // The other tab looks at the row again only after all of the below has happened.
  const [own, other, third] = [await tab(), await tab({ retryIntervalMs: 3_000 }), await tab()];
  for (const each of [own, other, third]) await each.open();
  const call = (tab, body) =>
    tab.evaluate((body) => {
      window.giving = new AbortController();
      semel.fetch("/accounts/a/deposit", { method: "POST", body, id: "x", signal: giving.signal }).then(({ status }) => answers.push(status), ({ code }) => answers.push(code));
    }, body);
  const join = async (tab, body) => {
    await tab.evaluate((name) => lab.watch(name), name);
    await call(tab, body);
    // The first transaction finds the row, and the second marks it as shared.
    await until(() => tab.evaluate(() => lab.seen().filter((each) => each.includes("readwrite")).length > 1), "it has joined");
  };
  // No request leaves while the server's clock is unknown.
  server.each = lost;
  await call(own, "5");
  await until(async () => (await rows(own, name)).length === 1, "it is stored");
  await join(other, "5");
  await own.evaluate(() => giving.abort());
  await until(async () => (await answers(own)).length === 1, "it is taken back");
  await call(own, "7");
  await until(async () => (await rows(own, name)).length === 1, "it is made anew");
  await join(third, "7");
  server.each = (_, serve) => serve();
  for (const [each, told] of [[own, ["cancelled", 200]], [third, [200]], [other, ["outcome-lost"]]]) {
    await until(async () => (await answers(each)).length === told.length, "it is told");
    assert.deepEqual(await answers(each), told);
  }
  assert.deepEqual([...new Set(server.attempts.map(({ id, body }) => [id, body].join()))], ["x,7"]);
});

test("a page that thaws goes on at once, even if only its document gets the event", LIMIT, async (t) => {
  const { server, tab } = world(t);
  const own = await tab({ retryIntervalMs: 3_600_000 });
  await own.open();
  server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? lost() : serve());
  await begin(own);
  await until(async () => (await own.evaluate(() => semel.getSnapshot().pending)) === 1 && server.attempts[0]?.endedMs, "the first attempt is lost");
  // Chromium's event doesn't bubble either.
  await until(async () => {
    await own.evaluate(() => document.dispatchEvent(new Event("resume")));
    return (await answers(own)).length;
  }, "it is answered");
  assert.deepEqual([await answers(own), server.attempts.length], [[200], 2]);
});

test("1,000 calls are all answered and run once, though the store has failed each of them once", LIMIT, async (t) => {
  const { server, name, tab } = world(t);
  // So many transactions would be slow if each waited for the disk. The requests have no order: otherwise each would wait for the one before. The
  // timeout is long, because a busy machine needs time for so many attempts at once.
  const own = await tab({ durability: "relaxed", ordered: false, maxAttempts: REQUESTS_MAX, attemptTimeoutMs: 100_000 });
  // Without this, a look for rows that other tabs left would be the first to find the connection closed.
  await own.evaluate(() => void (window.setInterval = () => 0));
  await own.open();
  await own.evaluate((name) => lab.watch(name), name);
  await own.evaluate(() => {
    window.refused = new Set();
    semel.addEventListener("lost", ({ detail: { requestId, error } }) => error.code === "store-failed" && refused.add(requestId));
  });
  // While the server's clock is unknown, the requests are stored and wait.
  server.each = lost;
  await begin(own, REQUESTS_MAX);
  await until(async () => (await pending(own)).length === REQUESTS_MAX, "all are stored", 60_000);
  // Once the clock is known, all requests are due at once, and the store fails them all: the next two connections don't open either.
  await own.evaluate(() => {
    let left = 2;
    lab.connectBy(() => {
      left -= 1;
      if (left === 0) lab.connectAgain();
      throw new DOMException("not now", "UnknownError");
    });
    lab.sever();
  });
  server.each = (_, serve) => serve();
  // Only the number is asked for: asking for the whole list again and again would keep the page from its work.
  let count;
  const areAll = async () => (count = await own.evaluate(() => window.answers.length)) === REQUESTS_MAX;
  await until(areAll, "all are answered", 100_000).catch(({ message }) => assert.fail(`${message}: ${count} are`));
  assert.equal(await own.evaluate(() => refused.size), REQUESTS_MAX, "the store has refused them all");
  assert.deepEqual([...new Set(await answers(own))], [200]);
  assert.deepEqual([server.runs.size, ...new Set(server.runs.values())], [REQUESTS_MAX, 1]);
});

// WebKit behaves like this once the process that keeps the rows has ended. Rows that come from a frame's IndexedDB are of that frame's classes.
test("if the page's IndexedDB has lost its server, the outbox goes on with that of a frame, which leaves after close", LIMIT, async (t) => {
  const { server, name, tab } = world(t);
  const own = await tab();
  await own.open();
  await own.evaluate((name) => lab.watch(name), name);
  server.each = losing;
  await begin(own);
  await until(() => server.attempts.length >= 2, "it is tried");
  await own.evaluate(() => lab.loseServer());
  const before = server.attempts.length;
  await until(() => server.attempts.length >= before + 2, "it is tried again, each time with its row raised");
  server.each = (_, serve) => serve();
  await begin(own);
  await until(async () => (await answers(own)).length === 2, "both are answered");
  assert.deepEqual([await answers(own), await pending(own), [...server.runs.values()]], [[200, 200], [], [1, 1]]);
  const frames = () => own.evaluate(() => document.querySelectorAll("head > iframe").length);
  assert.equal(await frames(), 1);
  // The frame leaves as soon as nothing can be under way any more.
  const [left, leaves] = await own.evaluate(async () => {
    const { setTimeout: set } = window;
    let leaves;
    window.setTimeout = (callback, ms, ...rest) => (ms === 30_000 ? void (leaves = callback) : set(callback, ms, ...rest));
    await semel.close();
    while (!leaves) await new Promise((resolve) => set(resolve));
    window.setTimeout = set;
    const left = document.querySelectorAll("head > iframe").length;
    leaves();
    return [left, document.querySelectorAll("head > iframe").length];
  });
  assert.deepEqual([left, leaves], [1, 0]);
  await own.evaluate(() => lab.connectAgain());
  assert.equal(await own.evaluate((name) => lab.dropHeld(name), name), false);
});

test("a closed outbox holds no connection, and the next open recovers the request that it stored", LIMIT, async (t) => {
  const { server, name, tab } = world(t);
  const own = await tab();
  await own.open();
  server.each = losing;
  await begin(own);
  await until(() => server.attempts.length >= 3, "it is tried");
  await own.evaluate(() => semel.close());
  const ids = await rows(own, name);
  assert.deepEqual(ids, [server.attempts[0].id]);
  await own.open();
  server.each = (_, serve) => serve();
  await until(async () => (await recovered(own)).length === 1, "it is recovered");
  await own.evaluate(() => semel.close());
  assert.deepEqual(await recovered(own), [[ids[0], 200]]);
  assert.equal(await own.evaluate((name) => lab.dropHeld(name), name), false);
});

test("a store that the browser has deleted is told at the next open, once; a new one is not", LIMIT, async (t) => {
  const { identity, name, tab } = world(t);
  const own = await tab();
  const open = () =>
    own.evaluate(async (identity) => {
      let lost = 0;
      const semel = await lab.outbox({ identity, onstorelost: () => void (lost += 1) });
      await semel.close();
      return lost;
    }, identity);
  assert.equal(await open(), 0, "it was never there");
  await own.evaluate((name) => lab.drop(name), name);
  assert.equal(await open(), 1);
  assert.equal(await open(), 0, "it is there");
  await own.evaluate(() => localStorage.clear());
  await own.evaluate((name) => lab.drop(name), name);
  assert.equal(await open(), 0, "nothing remembers it");
  // The page may not use localStorage.
  await own.evaluate(() => Object.defineProperty(window, "localStorage", { get: () => { throw new DOMException("no", "SecurityError"); } }));
  await own.evaluate((name) => lab.drop(name), name);
  assert.equal(await open(), 0);
});

test("a store that is deleted while it is open is told to onstorelost, and new calls are answered", LIMIT, async (t) => {
  const { server, identity, name, tab } = world(t);
  const own = await tab();
  await own.evaluate(async (identity) => {
    window.lost = 0;
    window.answers = [];
    window.semel = await lab.outbox({ identity, onstorelost: () => void (window.lost += 1) });
  }, identity);
  await begin(own);
  await until(async () => (await answers(own)).length === 1, "it works");
  assert.equal(await own.evaluate(() => window.lost), 0);
  assert.ok(await own.evaluate((name) => lab.dropHeld(name), name));
  await begin(own);
  await until(async () => (await answers(own)).length === 2, "it works again");
  assert.deepEqual([await own.evaluate(() => window.lost), await answers(own), server.runs.size], [1, [200, 200], 2]);
});
