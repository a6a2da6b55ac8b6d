// Tests how tabs learn by Web Locks which tabs live. A stub stands in for the locks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { lightBeacon } from "../../sdk/js/tabs.js";
import { rejection, within } from "./stub.mjs";

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Replaces Web Locks for a test. Returns the names that were asked for. */
function webLocks(t, { refuses, hides } = {}) {
  const [queues, asked, replaced] = [new Map(), [], Object.getOwnPropertyDescriptor(globalThis, "navigator")];
  const next = (name) => {
    const queue = queues.get(name);
    const [first] = queue;
    if (!first || first.isHeld) return;
    first.isHeld = true;
    const done = () => {
      queue.splice(queue.indexOf(first), 1);
      next(name);
    };
    first.resolve(Promise.resolve(first.hold({ name })).finally(done));
  };
  const locks = {
    async request(name, ...given) {
      const hold = given.pop();
      const [{ signal, ifAvailable } = {}] = given;
      asked.push(name);
      if (refuses) throw refuses;
      signal?.throwIfAborted();
      const queue = queues.get(name) ?? [];
      queues.set(name, queue);
      if (ifAvailable && queue.length > 0) return hold(null);
      return new Promise((resolve, reject) => {
        const one = { hold, resolve, isHeld: false };
        queue.push(one);
        signal?.addEventListener("abort", () => {
          if (one.isHeld) return;
          queue.splice(queue.indexOf(one), 1);
          reject(signal.reason);
        });
        next(name);
      });
    },
    query: async () => {
      if (hides) throw hides;
      return { held: [...queues].filter(([, [first]]) => first?.isHeld).map(([name]) => ({ name })) };
    },
  };
  Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
  t.after(() => {
    delete globalThis.navigator;
    if (replaced) Object.defineProperty(globalThis, "navigator", replaced);
  });
  return asked;
}

test("a tab with a beacon lives until it leaves, and only within its own database", async (t) => {
  webLocks(t);
  const [one, two] = [await lightBeacon("d", "1"), await lightBeacon("d", "2")];
  await lightBeacon("other", "3");
  assert.deepEqual(await one.alive(), ["1", "2"]);
  two.leave();
  await turn();
  assert.deepEqual(await one.alive(), ["1"]);
});

test("a watcher is told once that a tab is gone, however often it watched, and may watch it again after that", async (t) => {
  const asked = webLocks(t);
  const [one, two] = [await lightBeacon("d", "1"), await lightBeacon("d", "2")];
  let told = 0;
  for (let n = 0; n < 3; n += 1) one.watch("2", () => (told += 1));
  one.watch("1", assert.fail);
  assert.deepEqual(asked, ["d 1", "d 2", "d 2"]);
  await turn();
  assert.equal(told, 0);
  two.leave();
  await turn();
  assert.equal(told, 1);
  // The browser may bring a tab back like this.
  const back = await lightBeacon("d", "2");
  one.watch("2", () => (told += 1));
  back.leave();
  await turn();
  assert.equal(told, 2);
});

test("a tab that has left watches no other tab, and keeps no lock of another", async (t) => {
  webLocks(t);
  const [one, two, three] = [await lightBeacon("d", "1"), await lightBeacon("d", "2"), await lightBeacon("d", "3")];
  one.watch("2", assert.fail);
  one.leave();
  two.leave();
  await turn();
  assert.deepEqual(await three.alive(), ["3"]);
});

test("a tab that was shown again while it had its lock leaves nothing when it leaves", async (t) => {
  webLocks(t);
  const window = new EventTarget();
  globalThis.addEventListener = window.addEventListener.bind(window);
  t.after(() => delete globalThis.addEventListener);
  const [one, two] = [await lightBeacon("d", "1"), await lightBeacon("d", "2")];
  window.dispatchEvent(new Event("pageshow"));
  await turn();
  one.leave();
  await turn();
  assert.deepEqual(await two.alive(), ["2"]);
});

test("a tab that may not query locks gets no beacon, and takes no lock", async (t) => {
  const asked = webLocks(t, { hides: new Error("SecurityError") });
  assert.equal(await lightBeacon("d", "1"), undefined);
  assert.deepEqual(asked, []);
});

test("lightBeacon rejects with the error of a refused lock, and gives no beacon where there are no locks", async (t) => {
  webLocks(t, { refuses: new Error("SecurityError") });
  assert.equal((await within(rejection(lightBeacon("d", "1")), "it rejects")).message, "SecurityError");
  delete navigator.locks;
  assert.equal(await lightBeacon("d", "1"), undefined);
});
