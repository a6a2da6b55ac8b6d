// The scenarios that run in several browsers. Each gets a bank, and makes a test of it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { answers, attempts, begin, first, madeOnce, make, numberOf, pending, recovered, small, unheard } from "../bank.mjs";
import { gate, until } from "../lossy.mjs";

/** Registers the tests for a browser that WebDriver controls: those that need only tabs, reloads, and `kill -9` of the whole browser. */
export function play(name, limit, bank) {
  const { browser } = bank;
  const kill = async (_, blank) => {
    await browser.kill();
    await browser.start();
    return blank();
  };
  for (const [word, way, leave] of [["reload", "a reload", reload], ["kill", "kill -9 of the browser", kill]]) {
    test(`${name}: ${way} in mid-request: each request runs once, and the next page hears each missing answer once`, limit, leaving(bank, word, leave));
  }
  test(`${name}: a tab that is closed in mid-request leaves its requests to the other tab, and each runs once`, limit, leftOver(bank, 2, (page) => page.close()));
  test(`${name}: two tabs without Web Locks send one id at once: it runs once, and no tab hears a wrong outcome`, limit, sameId(bank));
  test(`${name}: the store is deleted in mid-request: nothing runs twice, and a call whose answer was lost is told so`, limit, evicted(bank, deleteAll));
  test(`${name}: a frame inside another site finishes what the frame before it had under way, unseen by the site itself`, limit, framed(bank));
  test(`${name}: a string, bytes, a buffer, a Blob and a stream are each sent unchanged as a body`, limit, anyBody(bank));
}

/** Leaves a page by a reload. */
export const reload = async (page) => {
  await page.reload();
  return page;
};

/**
 * A page goes in mid-request. `leave` gets the page, and resolves to the one after it, which has no outbox yet.
 *
 * When the page goes, each of its requests is in another stage: answered; in the network, to arrive after the page is gone; behind that one at the
 * same key, and never sent; executed, with the answer lost. The next page learns of all but the first.
 */
export function leaving({ server, through }, name, leave) {
  return async (t) => {
    const [answered, waiting, behind, lost] = [["before", 1], ["waiting", 1], ["waiting", 2], ["lost", 1]].map(([what, amount]) => small(`${name}-${what}`, amount));
    const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === waiting.n);
    const { proxy, open, blank, tab } = await through(t, { loseAnswers: 1, spare: ({ method, url }) => method !== "POST" || numberOf(url) !== lost.n, hold: wire.hold });
    let page = await tab();
    assert.equal((await make(page, answered)).text, first(answered.account, 1));
    for (const deposit of [waiting, behind, lost]) await begin(page, deposit);
    await until(() => wire.held.length > 0 && unheard(proxy, lost) > 0, "one is in the network, and one ran unheard");
    await until(async () => (await pending(page)).length === 3, "the third is stored");

    page = await leave(page, blank);
    await open(page);
    assert.deepEqual((await pending(page)).map(({ url }) => numberOf(url)).sort(), [waiting.n, behind.n, lost.n]);
    const late = wire.held.length;
    await until(() => wire.held.length > late, "the next page sends what is in the network already");
    assert.equal(attempts(proxy, behind), 0, "what is behind waits its turn");
    proxy.calm();
    wire.open();
    await page.evaluate(() => bank.takeRecovered());
    await until(async () => (await pending(page)).length === 0, "nothing is pending");

    const texts = new Map([[waiting.n, first(waiting.account, 1)], [behind.n, JSON.stringify({ id: behind.account, balance: 3, entries: 2 })], [lost.n, first(lost.account, 1)]]);
    const heard = await recovered(page);
    assert.deepEqual(new Map(heard.map(({ n, status, text }) => [n, `${status} ${text}`])), new Map([...texts].map(([n, text]) => [n, `200 ${text}`])));
    assert.equal(heard.length, 3, "each once");
    await madeOnce(server, [answered, waiting, behind, lost]);
    assert.equal(proxy.changes.size, 4, "each under one id");
  };
}

/** All tabs but the last end in mid-request. `end` gets each tab, and its place. */
export function leftOver({ server, through }, count, end) {
  return async (t) => {
    const EACH = 4;
    const { proxy, tab } = await through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
    const tabs = [];
    for (let n = 0; n < count; n += 1) tabs.push(await tab());
    for (const page of tabs) await page.evaluate(() => bank.takeRecovered());
    const deposits = tabs.map((_, place) => Array.from({ length: EACH }, (_, n) => small(`of-${count}-${n}`, 2 ** place)));
    await Promise.all(tabs.map(async (page, place) => {
      for (const deposit of deposits[place]) await begin(page, deposit);
    }));
    const all = deposits.flat();
    await until(() => all.every((deposit) => unheard(proxy, deposit) > 0), "all ran, and nobody knows");
    const last = tabs.at(-1);
    for (const [place, page] of tabs.slice(0, -1).entries()) await end(page, place);
    await until(async () => (await pending(last)).every(({ state }) => state === "sending"), "the last tab has taken over all");
    assert.equal((await pending(last)).length, all.length);
    proxy.calm();
    await until(async () => (await pending(last)).length === 0, "nothing is pending");
    const [own, others] = [await answers(last), await recovered(last)];
    assert.deepEqual(own.map(({ n }) => n).sort(), deposits.at(-1).map(({ n }) => n).sort());
    assert.deepEqual(others.map(({ n }) => n).sort(), deposits.slice(0, -1).flat().map(({ n }) => n).sort());
    for (const { n, status, text, semel } of [...own, ...others]) {
      const { account, amount } = all.find((deposit) => deposit.n === n);
      const { id, balance } = JSON.parse(text);
      assert.deepEqual([status, semel, id, Math.floor(balance / amount) % 2], [200, "replayed", account, 1]);
    }
    await madeOnce(server, all);
    assert.equal(proxy.changes.size, all.length, "each under one id");
  };
}

/** Two tabs send the same id, because neither knows that the other is alive. */
export function sameId({ server, through }) {
  return async (t) => {
    const deposit = small("same-id", 1);
    const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === deposit.n);
    const { proxy, open, blank } = await through(t, { hold: wire.hold });
    // Without Web Locks, a tab can't know that another is alive, and takes over what it finds.
    const unlit = async () => {
      const page = await blank();
      await page.evaluate(() => Object.defineProperty(navigator, "locks", { value: undefined }));
      await open(page);
      return page;
    };
    const one = await unlit();
    await begin(one, deposit);
    await until(() => wire.held.length === 1, "the first tab's attempt is in the network");
    const two = await unlit();
    await two.evaluate(() => bank.takeRecovered());
    await until(() => wire.held.length === 2, "so is the second's, of the same id");
    assert.equal(proxy.changes.size, 1);
    wire.open();
    await until(async () => (await answers(one)).length + (await recovered(two)).length > 0, "one of them hears of it");
    await until(async () => (await pending(two)).length === 0 && (await answers(one)).length === 1, "nothing is pending, and nobody waits");
    const [[own], taken] = [await answers(one), await recovered(two)];
    const outcome = `${deposit.n} 200 ${first(deposit.account, 1)}`;
    // The second tab forgets the outcome once it has told it. From then on, the first can't learn it any more.
    assert.ok([outcome, `${deposit.n} outcome-lost unknown`].includes(told(own)), told(own));
    assert.ok(taken.every((answer) => told(answer) === outcome) && taken.length <= 1, JSON.stringify(taken));
    assert.ok([told(own), ...taken.map(told)].includes(outcome), "somebody has the outcome");
    assert.equal(attempts(proxy, deposit), 2);
    await madeOnce(server, [deposit]);
  };
}

/** Makes two deposits in mid-request: one in the network, at the gate, and one that ran unheard. */
export async function inMidRequest({ through }, t, name) {
  const [flight, lost] = [small(`${name}-flight`, 1), small(`${name}-lost`, 1)];
  const wire = gate(({ method, url }) => method === "POST" && numberOf(url) === flight.n);
  const net = await through(t, { loseAnswers: 1, spare: ({ method, url }) => method !== "POST" || numberOf(url) !== lost.n, hold: wire.hold });
  const page = await net.tab();
  await begin(page, flight);
  await begin(page, lost);
  await until(() => wire.held.length > 0 && unheard(net.proxy, lost) > 0, "one is in the network, the other ran unheard");
  return { ...net, wire, page, flight, lost };
}

/** The store is thrown away under a tab in mid-request. `evict` gets the tab. */
export function evicted(bank, evict) {
  return async (t) => {
    const { proxy, wire, page, flight, lost } = await inMidRequest(bank, t, "cleared");
    await evict(page);
    const told = async (n) => (await answers(page)).find((answer) => answer.n === n);
    const { error } = await until(() => told(lost.n), "what ran unheard is told");
    assert.deepEqual([error?.code, error?.executed], ["outcome-lost", "unknown"]);
    const tried = attempts(proxy, lost);
    proxy.calm();
    wire.open();
    // This one still has its attempt, and so its answer.
    assert.equal((await until(() => told(flight.n), "what was in the network is told")).text, first(flight.account, 1));
    assert.deepEqual([await pending(page), attempts(proxy, lost)], [[], tried]);
    const later = small("cleared-later", 1);
    assert.equal((await make(page, later)).text, first(later.account, 1));
    await madeOnce(bank.server, [flight, lost, later]);
    assert.equal(proxy.changes.size, 3, "each under one id");
  };
}

/**
 * A frame of another site, which has its own storage: the next frame of that site goes on with what was under way, and the site in a tab of its own
 * sees nothing of it.
 */
function framed({ server, through }) {
  return async (t) => {
    const deposit = small("framed", 1);
    const { proxy, open, blank, tab } = await through(t, { loseAnswers: 1, spare: ({ method }) => method !== "POST" });
    const page = await blank();
    const url = await page.evaluate(() => location.href);
    const around = url.replace("127.0.0.1", "localhost");
    await page.goto(around);
    const frame = await page.frame(url);
    await open(frame);
    await begin(frame, deposit);
    await until(() => unheard(proxy, deposit) > 0, "it ran, and nobody knows");
    await page.goto(`${around}?next`);
    const byItself = await tab();
    assert.deepEqual(await pending(byItself), []);
    const next = await page.frame(url);
    await open(next);
    await next.evaluate(() => bank.takeRecovered());
    proxy.calm();
    await until(async () => (await pending(next)).length === 0, "nothing is pending");
    assert.deepEqual((await recovered(next)).map(told), [`${deposit.n} 200 ${first(deposit.account, 1)}`]);
    await madeOnce(server, [deposit]);
    assert.equal(proxy.changes.size, 1, "under one id");
  };
}

/** Sends a body of each kind that `fetch` takes. In Firefox, a Request gives no stream of its body, and makes text of a stream that it gets. */
function anyBody({ server, through }) {
  return async (t) => {
    const { tab } = await through(t);
    const page = await tab();
    const kinds = await page.evaluate(async () => {
      const text = (amount) => JSON.stringify({ amount });
      const bytes = (amount) => new TextEncoder().encode(text(amount));
      const bodies = { string: text(1), bytes: bytes(2), buffer: bytes(4).buffer, Blob: new Blob([text(8)]), stream: new Blob([text(16)]).stream() };
      const answers = {};
      for (const [kind, body] of Object.entries(bodies)) {
        const { status } = await window.bank.fetch("/accounts/bodies/deposit", { method: "POST", body });
        answers[kind] = status;
      }
      return answers;
    });
    assert.deepEqual(kinds, { string: 200, bytes: 200, buffer: 200, Blob: 200, stream: 200 });
    await madeOnce(server, [1, 2, 4, 8, 16].map((amount) => ({ account: "bodies", amount })));
  };
}

/** Sends a body for which the browser has no room: a megabyte exceeds its quota. */
export function noRoom({ through }) {
  return async (t) => {
    const { proxy, tab } = await through(t);
    const page = await tab();
    const told = await page.evaluate(async () => {
      // Random bytes, because what is stored is compressed.
      const body = new Uint8Array(1_048_576);
      for (let at = 0; at < body.length; at += 65_536) crypto.getRandomValues(body.subarray(at, at + 65_536));
      return window.bank.fetch("/accounts/full/deposit", { method: "POST", body }).then(
        ({ status }) => ({ status }),
        ({ code, executed, cause }) => ({ code, executed, cause: cause?.code }),
      );
    });
    assert.deepEqual(told, { code: "store-failed", executed: "no", cause: "store-full" });
    assert.equal(proxy.changes.size, 0, "nothing was sent");
  };
}

/** What a page was told, by a promise or by `onrecovered`. */
const told = ({ n, status, text, error }) => (error ? `${n} ${error.code} ${error.executed}` : `${n} ${status} ${text}`);

/** Deletes all databases of the page's origin. */
const deleteAll = (page) =>
  page.evaluate(async () => {
    for (const { name } of await indexedDB.databases()) {
      const deleting = indexedDB.deleteDatabase(name);
      await new Promise((resolve, reject) => Object.assign(deleting, { onsuccess: resolve, onerror: () => reject(deleting.error) }));
    }
  });
