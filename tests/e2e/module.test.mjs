// What the rest of the worker does when the module dies, which errors it does not take for that, and the form of a line in the log. The test provides
// the module; in `handler.test.mjs` a real one dies on workerd.

import assert from "node:assert/strict";
import { test } from "node:test";
import { given, natively } from "./natively.mjs";

const { Table, attempted, guarded, note, noteOf, perInstance, settingsOf } = await natively("module.js");

/** Notes what was printed, and how often the instance was thrown away. */
function watch(t) {
  const printed = t.mock.method(console, "log", () => {});
  const its = { restarts: 0, lines: () => printed.mock.calls.map(({ arguments: [line] }) => line) };
  given.glue.restarted = () => (its.restarts += 1);
  return its;
}

const text = () => {
  throw "the disk is full";
};
const trap = () => {
  throw new WebAssembly.RuntimeError("unreachable");
};

test("a panic replaces the instance and all that was made in it, and an error that is thrown as text does not", (t) => {
  const its = watch(t);
  const made = perInstance((settings) => ({ settings }));
  const first = made("a");
  assert.equal(guarded(() => "answered", trap), "answered");
  assert.throws(() => guarded(text, () => "otherwise"), (error) => error === "the disk is full");
  assert.throws(() => attempted(text), /^Error: the disk is full$/);
  assert.deepEqual([made("b") === first, its.restarts, its.lines()], [true, 0, []]);
  assert.equal(guarded(trap, () => `otherwise, in instance ${its.restarts}`), "otherwise, in instance 1");
  assert.match(its.lines()[0], /"level":"error".*the module was restarted: RuntimeError: unreachable/);
  const second = made("c");
  assert.deepEqual([second, its.restarts], [{ settings: "c" }, 1]);
  assert.throws(() => attempted(trap), WebAssembly.RuntimeError);
  assert.deepEqual([made("d"), its.restarts], [{ settings: "d" }, 2]);
});

test("what could not be made in an instance is made at the next use, each failure is told, and the instance stays", (t) => {
  const its = watch(t);
  let isReadable = false;
  const made = perInstance(() => (isReadable ? "made" : text()));
  for (let time = 0; time < 2; time += 1) assert.throws(() => guarded(made, () => "otherwise"), (error) => error === "the disk is full");
  isReadable = true;
  assert.deepEqual([made(), its.restarts], ["made", 0]);
});

test("a line of the log is one line of JSON whatever its message, with the hash of its key if that is known", (t) => {
  const its = watch(t);
  const odd = "a\nb\u2028\u2029c\u202ed\u{e0001}e\u0085f\"";
  note("warn", odd);
  noteOf(() => ({ key_hash: () => "hash" }), "one");
  noteOf(() => ({ key_hash: text }), "other");
  const lines = its.lines();
  assert.match(lines[0], /^[ -~]*$/);
  assert.deepEqual(lines.map((line) => JSON.parse(line)).map(({ level, message, key }) => [level, message, key]), [["warn", odd, undefined], ["warn", "one", "hash"], ["warn", "other", undefined]]);
});

test("settings are the variables that begin with SEMEL_, as texts or as JSON of their values", () => {
  assert.equal(settingsOf({ SEMEL_A: "x", SEMEL_B: false, SEMEL_C: [{ d: 1 }], OTHER: "y" }), 'SEMEL_A=x\0SEMEL_B=false\0SEMEL_C=[{"d":1}]\0');
});

test("the table of rates has 0 for an unknown principal, and a sweep drops those that are free again", () => {
  const table = new Table([["a", 5n], ["b", 6n]]);
  assert.deepEqual([table.get("a"), table.get("c")], [5n, 0n]);
  table.sweep(5n);
  assert.deepEqual([...table.keys()], ["b"]);
});
