// JSON of what a handler answers or sends, and of messages: what JSON would change is refused. `script.test.mjs` has some of it on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { natively } from "./natively.mjs";

const { jsonOf } = await natively("json.js");

test("what JSON can hold is written as it is, with a Date as its text and without members that are undefined", () => {
  const bare = Object.assign(Object.create(null), { b: 1 });
  for (const [body, json] of [[null, "null"], ["", '""'], [0, "0"], [-1.5, "-1.5"], [false, "false"], [[], "[]"], [{ a: undefined, b: [null, bare] }, '{"b":[null,{"b":1}]}'], [new Date(0), '"1970-01-01T00:00:00.000Z"']]) {
    assert.equal(jsonOf(body), json);
  }
});

test("what JSON would turn into {} or null, or leave out, is refused wherever it is, and the error says what it is", () => {
  for (const [value, kind] of [[Infinity, "Infinity"], [-Infinity, "-Infinity"], [NaN, "NaN"], [new Map(), "[object Map]"], [new Set(), "[object Set]"], [/a/, "[object RegExp]"], [new Error("a"), "[object Error]"], [new Uint8Array(), "[object Uint8Array]"], [Promise.resolve(), "[object Promise]"], [() => {}, "[object Function]"], [Symbol("a"), "[object Symbol]"]]) {
    for (const body of [value, { a: value }, [value], { a: [{ b: value }] }]) assert.throws(() => jsonOf(body), { name: "TypeError", message: `the body is or has ${kind}: it is text, a Uint8Array, or what JSON can hold` });
  }
  assert.throws(() => jsonOf([undefined]), /the body is or has \[object Undefined\]/);
  assert.throws(() => jsonOf([, 1]), /the body is or has \[object Undefined\]/);
  for (const nothing of [undefined, { toJSON: () => undefined }]) assert.throws(() => jsonOf(nothing), /there is no body, or its toJSON gives nothing/);
  assert.throws(() => jsonOf({ a: 1n }), TypeError);
});
