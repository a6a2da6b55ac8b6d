// The buffers that the Worker holds so that V8 collects earlier: how many, until when, and what happens if there is no room for one.
// `tests/bench/collections.test.mjs` tests that V8 does collect earlier.

import assert from "node:assert/strict";
import { test } from "node:test";

const MB = 1 << 20;

/** `collect` of a Worker of its own, with a runtime that the test controls. Returns a function that calls it for this many requests. */
async function heldOn(t, { WeakRef, ArrayBuffer }) {
  const real = { WeakRef: globalThis.WeakRef, ArrayBuffer: globalThis.ArrayBuffer };
  t.after(() => Object.assign(globalThis, real));
  const { collect } = await import(`../../worker/garbage.js?${t.name}`);
  Object.assign(globalThis, { WeakRef, ArrayBuffer });
  return (requests) => {
    for (let asked = 0; asked < requests; asked += 1) collect();
  };
}

/** A runtime whose references a full collection empties, and which notes the size of each buffer in MB. */
function runtime() {
  const made = { mb: [], collections: 0 };
  class WeakRef {
    #at = made.collections;

    deref() {
      return this.#at === made.collections ? {} : undefined;
    }
  }
  class ArrayBuffer {
    constructor(bytes, { maxByteLength }) {
      assert.equal(maxByteLength, bytes, "one that may be resized, which the runtime does not clear");
      made.mb.push(bytes / MB);
    }
  }
  return { made, WeakRef, ArrayBuffer };
}

test("collect allocates 4 MB every 125 requests, 32 MB at most, and more only after a full collection", async (t) => {
  const { made, ...classes } = runtime();
  const ask = await heldOn(t, classes);
  ask(125);
  ask(124);
  assert.deepEqual(made.mb, [], "the first only marks when it began");
  ask(1);
  assert.deepEqual(made.mb, [4]);
  ask(124);
  assert.deepEqual(made.mb, [4]);
  ask(125 * 20);
  assert.deepEqual(made.mb, Array(8).fill(4));
  made.collections += 1;
  ask(125 * 20);
  assert.deepEqual(made.mb, Array(16).fill(4));
});

test("without WeakRef collect allocates nothing, and without room for a buffer it tries again every 125 requests", async (t) => {
  const { made, ...classes } = runtime();
  const ask = await heldOn(t, { ...classes, WeakRef: undefined });
  ask(1_000);
  assert.deepEqual(made.mb, []);
  globalThis.WeakRef = classes.WeakRef;
  let refused = 0;
  globalThis.ArrayBuffer = class {
    constructor() {
      refused += 1;
      throw new RangeError("Array buffer allocation failed");
    }
  };
  ask(125 * 9);
  assert.equal(refused, 8, "and asks again, every 125 requests");
});
