// Tests the words that administrators read: numbers, ages, a record's life, bodies, and the addresses of the inspector.

import assert from "node:assert/strict";
import { test } from "node:test";
import { explain } from "../../sdk/admin/advice.js";
import { factsOf, lifeOf } from "../../sdk/admin/life.js";
import { formsOf } from "../../sdk/admin/outcome.js";
import { STATES, age, bytes, counted, duration, fullness, haveForgotten } from "../../sdk/admin/words.js";
import { fragmentOf, routeOf } from "../../www/inspector/route.js";
import { NOW_MS } from "./world.mjs";

test("sizes, ages and shares are short, and never say more than is true", () => {
  assert.deepEqual([0, 999, 1_000, 24_576, 310_024_576, 8e9, 2.5e15].map(bytes), ["0 B", "999 B", "1.0 kB", "25 kB", "310 MB", "8.0 GB", "2500 TB"]);
  assert.deepEqual([0, 1, 60, 90, 3_600, 86_400, 90_000, 172_800].map(duration), ["0 s", "1 s", "1 min", "90 s", "1 h", "1 day", "25 h", "2 days"]);
  assert.deepEqual([age(0, 90_000), age(90_000, 0), age(400, 0)], ["90 s ago", "in 90 s", "now"]);
  assert.deepEqual([counted(0, "key"), counted(1, "key"), counted(9_999, "key"), haveForgotten(1), haveForgotten(2)], ["0 keys", "1 key", "9,999 keys", "1 key has forgotten", "2 keys have forgotten"]);
  assert.deepEqual([fullness(0, 10), fullness(1, 1e6), fullness(999_999, 1e6), fullness(10, 10), fullness(31, 800), fullness(12, 10)], ["0 %", "below 0.1 %", "99 %", "100 %", "3.8 %", "120 %"]);
});

const record = (more) => ({ id: "x", state: "executed", principal: "alice", firstSent: NOW_MS / 1000 - 61, at: NOW_MS - 60_500, deadline: NOW_MS - 50_000, lapses: null, executed: "yes", status: 200, bytes: 2, crashes: null, ...more });
const titles = (record, retention = 86_400) => lifeOf(record, NOW_MS, retention).map(({ title, isAhead }) => `${title}${isAhead ? " (ahead)" : ""}`);

test("the life of a record is its known instants in their order, with those in the future marked", () => {
  assert.deepEqual(titles(record()), ["First sent", "Executed", "Latest deadline", "Outcome expires (ahead)"]);
  assert.deepEqual(titles(record(), null), ["First sent", "Executed", "Latest deadline"]);
  assert.deepEqual(titles(record({ state: "acknowledged", lapses: NOW_MS + 10_000 })), ["First sent", "Acknowledged", "Latest deadline", "Lapses (ahead)"]);
  assert.deepEqual(titles(record({ firstSent: null, deadline: null, state: "cancelled", lapses: NOW_MS - 1 })), ["Cancelled", "Lapses"]);
  // The first-sent has only seconds, so it may look later than the execution.
  assert.deepEqual(titles(record({ firstSent: NOW_MS / 1000 - 60, at: NOW_MS - 60_000 })).slice(0, 2), ["First sent", "Executed"]);
});

test("of an id without a row the life shows only when it lapses, and the facts only whether it ran and what is kept", () => {
  const packed = record({ state: "acknowledged", principal: null, firstSent: null, at: null, deadline: null, lapses: NOW_MS + 10_000, status: null, bytes: null });
  assert.deepEqual(titles(packed), ["Lapses (ahead)"]);
  assert.deepEqual(factsOf(packed), [["Ran", "yes, once"], ["Kept", "its id, and until when it is refused"]]);
});

test("every state of a record has its words, and its own title in the record's life", () => {
  for (const state of Object.keys(STATES)) {
    assert.equal(STATES[state].length, 2);
    assert.notEqual(lifeOf(record({ state }), NOW_MS, null).find(({ atMs }) => atMs === NOW_MS - 60_500).title, state);
  }
  const ran = (state, executed) => factsOf(record({ state, executed }))[0][1];
  assert.deepEqual([ran("executed", "yes"), ran("suspect", "no"), ran("suspect", "unknown"), ran("cancelled", "unknown")], ["yes, once", "not yet", "not known", "not known"]);
  assert.deepEqual(factsOf(record({ state: "poisoned", principal: "", firstSent: null, deadline: null, crashes: 3, executed: "no" })), [["Ran", "no, and it never will"], ["Principal", "none"], ["Crashes", "3"], ["First sent", "its client did not say"], ["Deadline", "an attempt had none"]]);
});

test("a code or state named like a built-in property of JavaScript is treated as unknown", () => {
  assert.equal(explain({ code: "constructor", message: "the server says so", executed: "no" }, true).what, "The server says so.");
  assert.equal(STATES.constructor, undefined);
});

test("a body is shown as JSON, text or bytes as it is, and a long one is cut at 65,536 bytes", () => {
  const formsOfBody = (body, headers = {}) => formsOf({ headers, body }).forms;
  assert.deepEqual(formsOfBody('{"a":[1]}'), { JSON: '{\n  "a": [\n    1\n  ]\n}', Text: '{"a":[1]}', Hex: "000000  7b 22 61 22 3a 5b 31 5d 7d                       {\"a\":[1]}" });
  assert.equal(formsOfBody('{ "a" : "b \\" c" }').JSON, '{\n  "a": "b \\" c"\n}');
  assert.deepEqual(Object.keys(formsOfBody("7")), ["Text", "Hex"]);
  for (const changed of ['{"order":7034567890123456789}', '{"total":1e400}', '{"a":1,"a":2}', `[${"[1],".repeat(10_000)}1]`]) assert.deepEqual(Object.keys(formsOfBody(changed)), ["Text", "Hex"], changed.slice(0, 20));
  assert.deepEqual(Object.keys(formsOfBody({ base64: "gA==" })), ["Hex"]);
  assert.deepEqual(Object.keys(formsOfBody("a", { "Content-Type": "image/png" })), ["Hex", "Text"]);
  assert.deepEqual(formsOf({ headers: {}, body: "" }), { bytes: 0, forms: {} });
  assert.equal(formsOfBody("\ufeffa").Text, "\ufeffa", "nothing is taken away");
  const spaced = formsOf({ headers: {}, body: `[1${" ".repeat(70_000)}]` });
  assert.deepEqual([spaced.cutTo, Object.keys(spaced.forms)], [65_536, ["Text", "Hex"]], "what is said to be cut is");
  const long = formsOf({ headers: {}, body: "ä".repeat(100_000) });
  assert.deepEqual([long.bytes, long.cutTo], [200_000, 65_536]);
  assert.ok(Object.values(long.forms).every((text) => text.length < 330_000));
  assert.equal(long.forms.Text, "ä".repeat(32_768), "of the bytes that are shown");
  assert.equal(formsOf({ headers: {}, body: "€".repeat(100_000) }).forms.Text, "€".repeat(21_845), "and no half of a character");
});

test("a route survives its way through the address, and an address that means nothing is the list of keys", () => {
  for (const route of [
    { view: "keys", order: "newest", prefix: "" },
    { view: "keys", order: "heaviest", prefix: "a&b=c#d e/%" },
    { view: "keys", order: "name", prefix: "", state: "in-doubt" },
    { view: "keys", order: "name", prefix: "", state: "parked" },
    { view: "key", key: `<img src=x onerror="1">&id=2` },
    { view: "record", key: "Zürich ☃/100%", id: "a=b&c" },
    { view: "forget", id: "" },
    { view: "forget", id: "job-1" },
  ]) {
    assert.deepEqual(routeOf(fragmentOf(route)), route);
  }
  for (const fragment of ["", "#", "#x", "#order=up", "#key=", "#id=a", "#state=executed", "#state=constructor"]) assert.deepEqual(routeOf(fragment), { view: "keys", order: "newest", prefix: "" }, fragment);
  assert.equal(fragmentOf({ view: "keys" }), "#");
});
