// Tests the classes of errors: each code has one, and `instanceof` works whichever copy of the package (ES modules or CommonJS) made the error.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import * as esm from "../../sdk/npm/node.js";
import cjs from "../../sdk/npm/cjs/index.cjs";
import { Stub, deposit, outbox, problem, rejection } from "./stub.mjs";

const OTHERS = ["Semel", "SemelError", "StoreError", "OutcomeUnknownError"];
const classOf = (code) => `${code.split("-").map((word) => word[0].toUpperCase() + word.slice(1)).join("")}Error`;

test("an error is an instance of the class of its code and of no other, in both copies of the package", async (t) => {
  const [answer] = [410];
  const code = "forgotten";
  const server = new Stub();
  server.each = (call, serve) => (call.kind === "change" ? problem(answer, code, { executed: "unknown", retry: "never" }) : serve());
  const { semel } = await outbox(t, { server });
  const error = await rejection(deposit(semel));
  assert.notEqual(esm.SemelError, cjs.SemelError);
  for (const copy of [esm, cjs]) {
    const classes = Object.entries(copy).filter(([, value]) => typeof value === "function" && error instanceof value);
    assert.deepEqual(classes.map(([name]) => name).sort(), ["ForgottenError", "SemelError"]);
  }
  assert.deepEqual([error.name, error.code, Object.hasOwn(error, "cause")], ["ForgottenError", "forgotten", false]);
});

test("an uncaught error is printed with its class and code, and without very long lines", async () => {
  const open = 'Semel.open({ url: "https://worker.test" })';
  const [here, there] = ["node.js", "cjs/index.cjs"].map((name) => JSON.stringify(fileURLToPath(new URL(`../../sdk/npm/${name}`, import.meta.url))));
  for (const args of [["--input-type=module", "-e", `import { Semel } from ${here}; await ${open}`], ["--input-type=commonjs", "-e", `const { Semel } = require(${there}); ${open}`]]) {
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    assert.equal(status, 1);
    assert.match(stderr, /^StoreError: store-unavailable: /m);
    // Node prints the line of source that threw, so no line of the package may be long.
    assert.ok(Math.max(...stderr.split("\n").map(({ length }) => length)) < 1_000, stderr);
  }
});

test("an error after which nobody knows the outcome is an OutcomeUnknownError and of the class of its code", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 0 });
  server.each = () => Promise.reject(new TypeError("fetch failed"));
  const error = await rejection(deposit(semel));
  for (const copy of [esm, cjs]) assert.ok(error instanceof copy.OutcomeUnknownError && error instanceof copy.GaveUpError && !(error instanceof copy.ClosedError));
  for (const code of ["outcome-unknown", "closed", "outcome-lost"]) assert.ok(new esm.SemelError("id", [code]) instanceof esm.OutcomeUnknownError, code);
});

test("a StoreError is no SemelError, and another value is neither", () => {
  const error = new esm.StoreError("store-full", "there is no space", new Error("why"));
  for (const copy of [esm, cjs]) assert.ok(error instanceof copy.StoreError && !(error instanceof copy.SemelError));
  assert.deepEqual([error.name, error.message, error.cause.message], ["StoreError", "store-full: there is no space", "why"]);
  // Node would print it.
  assert.ok(!Object.hasOwn(new esm.StoreError("store-full", "there is no space"), "cause"));
  for (const other of [new Error("x"), null, undefined, { code: "cancelled" }]) {
    assert.ok(!(other instanceof esm.SemelError) && !(other instanceof esm.StoreError) && !(other instanceof esm.CancelledError));
  }
});

test("what Node prints of an error begins with its class and its code", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 0 });
  server.each = () => Promise.reject(new TypeError("fetch failed"));
  assert.match(inspect(await rejection(deposit(semel))), /^SemelError \[GaveUpError\]: gave-up: /);
  assert.match(inspect(new esm.StoreError("store-full", "there is no space")), /^StoreError: store-full: there is no space/);
});

test("every code that a caller can get has its class, and both copies of the package export the same", async () => {
  const types = await readFile(new URL("../../sdk/npm/index.d.ts", import.meta.url), "utf8");
  const declared = [...types.matchAll(/^export (?:class|const) (\w+)/gm)].map(([, name]) => name).sort();
  assert.deepEqual(Object.keys(esm).sort(), declared);
  assert.deepEqual(Object.keys(cjs).sort(), declared);
  const codes = [...types.matchAll(/^ {2}\| "([a-z-]+)"/gm)].map(([, code]) => code);
  const clients = ["outbox-full", "store-failed", "gave-up", "closed", "outcome-lost"];
  // The SDK sends again after these codes, so no caller gets them. Only the error of `outcome-unknown` reaches callers: its class is in OTHERS.
  const again = ["not-seen", "attempt-expired", "in-flight", "locked", "outcome-unknown", "rate-limited", "rolled-back", "upstream-unreachable", "capacity", "unavailable"];
  // A session mends a gap itself, and the SDK has no transactions.
  again.push("sequence-gap", "transaction-aborted");
  const expected = [...codes, ...clients].filter((code) => !again.includes(code)).map(classOf);
  assert.deepEqual([...expected, ...OTHERS].sort(), declared);
});
