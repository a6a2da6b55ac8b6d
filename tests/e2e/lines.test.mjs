// How the Worker reads header lines and URLs. `paths.test.mjs` tests paths over HTTP.

import assert from "node:assert/strict";
import { test } from "node:test";
import { natively } from "./natively.mjs";

const { answered, linesOf, pairsOf, pathOf, responseOf, valueIn } = await natively("lines.js");

test("pathOf reads path and query as new URL does", () => {
  for (const url of ["https://a.example/b/c-d_e~f/1", "http://[::1]:8080/b", "https://a.example/b/../c", "https://a.example/%2e%2e/b", "https://a.example/b/?c=d", "https://a.example", "https://a.example/b//c", "https://a.example/a.b", "https://a.example?b/c", "https://a.example#b/c", "https://me:b@a.example/b", "https://a.example/\u00e9"]) {
    const { pathname, search } = new URL(url);
    assert.deepEqual(pathOf(url), { pathname, search }, url);
  }
});

test("a header is found by its whole name, and an answer keeps every header of a name", () => {
  const lines = "x-semel-status:no\nsemel-status:executed\nx:a:b\n";
  assert.deepEqual(["semel-status", "x", "status", "none"].map((name) => valueIn(lines, name)), ["executed", "a:b", undefined, undefined]);
  assert.deepEqual(pairsOf(lines).at(-1), ["x", "a:b"]);
  assert.deepEqual(pairsOf(":no name\nno value\na:b\nc:\n"), [["a", "b"], ["c", ""]]);
  assert.equal(linesOf(new Headers({ b: "2", a: "1" })), "a:1\nb:2\n");
  const { status, headers } = responseOf([204, "x-one:1\nx-one:2\n", undefined]);
  assert.deepEqual([status, headers.get("x-one")], [204, "1, 2"]);
});

test("an answer keeps its body when the memory of the module changes afterwards", () => {
  const memory = new Uint8Array([1, 2]);
  const [, , body] = answered(200, "", memory.subarray(0, 1), undefined);
  memory.fill(9);
  assert.deepEqual([...body], [1]);
});

test("an answer without a body has none when it leaves", () => {
  const answer = answered(204, "x:1\n", undefined, "a line of the log");
  assert.deepEqual(answer, [204, "x:1\n", undefined, "a line of the log"]);
  assert.equal(responseOf(answer).body, null);
});
