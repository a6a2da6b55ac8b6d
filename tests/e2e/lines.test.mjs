// Bodies as they are read, whole or not at all, and what is taken from lines and URLs. By HTTP they are in `codes.test.mjs` and `paths.test.mjs`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { natively } from "./natively.mjs";

const { bodyOf, linesOf, pairsOf, pathOf, responseOf, valueIn } = await natively("lines.js");

const MIB = 1 << 20;

/** A message whose body comes in chunks of so many bytes, each of another value; `length`: what its head says. Tells how much of it was taken, and whether the rest was let go. */
function message(sizes, length) {
  const its = { taken: 0, isCancelled: false };
  const chunks = sizes.map((size, at) => new Uint8Array(size).fill(at + 1));
  const pull = (controller) => {
    const chunk = chunks.shift();
    if (chunk === undefined) return controller.close();
    its.taken += chunk.byteLength;
    controller.enqueue(chunk);
  };
  const body = new ReadableStream({ pull, cancel: () => void (its.isCancelled = true) }, { highWaterMark: 0 });
  return Object.assign(its, { headers: new Headers(length === undefined ? {} : { "content-length": String(length) }), body, arrayBuffer: () => new Response(body).arrayBuffer() });
}

test("a body is read whole up to a mebibyte, whether its length is known before or not, in however many chunks", async () => {
  for (const sizes of [[], [5], [3, 4], [MIB], [MIB - 1, 1]]) {
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    const expected = Buffer.concat(sizes.map((size, at) => Buffer.alloc(size, at + 1)));
    for (const length of [undefined, bytes]) assert.ok(expected.equals(await bodyOf(message(sizes, length))), `${sizes} ${length}`);
  }
  assert.equal((await bodyOf({ headers: new Headers(), body: null })).byteLength, 0);
});

test("of a larger one there is nothing, and sixteen mebibytes at most are read of it; where its head says more, none", async () => {
  for (const [sizes, length] of [[[MIB, 1]], [[MIB, 1], MIB + 1], [Array(16).fill(MIB)], [[MIB + 1], MIB + 1]]) assert.equal(await bodyOf(message(sizes, length)), undefined, `${sizes} ${length}`);
  const endless = message(Array(100).fill(MIB));
  assert.equal(await bodyOf(endless), undefined);
  assert.deepEqual([endless.taken, endless.isCancelled], [17 * MIB, true]);
  const announced = message(Array(100).fill(MIB), 100 * MIB);
  assert.deepEqual([await bodyOf(announced), announced.taken], [undefined, 0]);
});

test("a path is as URLs have it, however its URL is read", () => {
  for (const url of ["https://a.example/b/c-d_e~f/1", "http://[::1]:8080/b", "https://a.example/b/../c", "https://a.example/%2e%2e/b", "https://a.example/b/?c=d", "https://a.example", "https://a.example/b//c", "https://a.example/a.b", "https://a.example/\u00e9"]) {
    const { pathname, search } = new URL(url);
    assert.deepEqual(pathOf(url), { pathname, search }, url);
  }
});

test("a header is found by its whole name, and each of a name is in an answer", () => {
  const lines = "x-semel-status:no\nsemel-status:executed\nx:a:b\n";
  assert.deepEqual(["semel-status", "x", "status", "none"].map((name) => valueIn(lines, name)), ["executed", "a:b", undefined, undefined]);
  assert.deepEqual(pairsOf(lines).at(-1), ["x", "a:b"]);
  assert.equal(linesOf(new Headers({ b: "2", a: "1" })), "a:1\nb:2\n");
  const { status, headers } = responseOf([204, "x-one:1\nx-one:2\n", undefined]);
  assert.deepEqual([status, headers.get("x-one")], [204, "1, 2"]);
});
