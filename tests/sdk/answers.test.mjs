// Tests how the SDK reads an answer: as an outcome, as a definitive problem, or as neither, after which it sends again.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { OutcomeUnknownError, SemelError } from "../../sdk/npm/node.js";
import { CLOSED } from "../../sdk/js/machine.js";
import { deposit, outbox, problem, rejection, until } from "./stub.mjs";

const PROTOCOL = await readFile(new URL("../../PROTOCOL.md", import.meta.url), "utf8");
const TYPES = await readFile(new URL("../../sdk/npm/index.d.ts", import.meta.url), "utf8");
const FAILURES = await readFile(new URL("../../core/src/client/failure.rs", import.meta.url), "utf8");

/** The table of codes in PROTOCOL.md: `{ code, status, executed, retry }`. */
const CODES = [...PROTOCOL.matchAll(/^\| `([a-z-]+)` \| (\d{3}) \| (no|yes|unknown) \| (same-id|after-fix|never) \|/gm)].map(
  ([, code, status, executed, retry]) => ({ code, status: Number(status), executed, retry }),
);

/** The members of a string union in index.d.ts. */
function unionOf(name) {
  const [, union] = new RegExp(`export type ${name} =([^;]*);`).exec(TYPES);
  return [...union.matchAll(/"([^"]+)"/g)].map(([, member]) => member);
}

/** Answers the first attempts with `strangers`, one each, and later ones with the stub. */
async function answeredInstead(t, strangers, options) {
  const { semel, server } = await outbox(t, { onpaused: ({ error }) => assert.fail(error.message), ...options });
  server.each = (call, serve) => (call.kind === "change" ? (strangers[call.n - 1]?.(call, server) ?? serve()) : serve());
  return { semel, server };
}

/** What a browser's `fetch` returns for a redirect that it doesn't follow. A script can't make a Response of this type. */
const opaqueRedirect = () => ({ type: "opaqueredirect", status: 0, headers: new Headers(), arrayBuffer: async () => new ArrayBuffer(0) });

const NOT_DEFINITIVE = {
  "a portal's 200 without Semel-Status": () => new Response("<h1>Log in</h1>", { headers: { "content-type": "text/html" } }),
  "a proxy's 403 without Semel-Status": () => new Response("Blocked", { status: 403 }),
  "a stranger's 401 without Semel-Status": () => new Response(null, { status: 401, headers: { "www-authenticate": "Basic" } }),
  "a stranger's problem without Semel-Status, whatever it says": () =>
    new Response('{"code":"cancelled","executed":"no","retry":"never"}', { status: 410, headers: { "content-type": "application/problem+json" } }),
  "a stranger's 404": () => new Response("Not Found", { status: 404 }),
  "a stranger's 204": () => new Response(null, { status: 204 }),
  "an opaque redirect": opaqueRedirect,
  "a 307": () => new Response(null, { status: 307, headers: { location: "https://elsewhere.test/" } }),
  "a 303 that says executed": () => new Response(null, { status: 303, headers: { location: "https://elsewhere.test/", "semel-status": "executed" } }),
  "a network error as a Response": () => Response.error(),
  "something that is no Response": () => ({}),
  "a 5xx whose problem says never": () => problem(500, "rolled-back", { executed: "no", retry: "never" }),
  "a 5xx whose problem says after-fix": () => problem(503, "capacity", { executed: "no", retry: "after-fix" }),
  "an unknown 5xx that says never": () => problem(599, "melted", { executed: "no", retry: "never" }),
  "executed with status 500": () => new Response("{}", { status: 500, headers: { "semel-status": "executed" } }),
  "replayed with status 502": () => new Response("{}", { status: 502, headers: { "semel-status": "replayed" } }),
  "executed with status 304": () => new Response(null, { status: 304, headers: { "semel-status": "executed" } }),
  // Chromium returns this over plain HTTP if the connection ends within the head.
  "executed, with none of the bytes of its Content-Length": () => new Response(null, { headers: { "content-length": "34", "semel-status": "executed" } }),
  "read, for a change": () => new Response("{}", { headers: { "semel-status": "read" } }),
  "an empty Semel-Status": () => new Response("{}", { headers: { "semel-status": "" } }),
  "an unknown code with retry same-id": () => problem(409, "newer", { executed: "unknown", retry: "same-id" }),
  "an unknown code without retry": () => problem(409, "newer", { executed: "no", retry: undefined }),
  "an unknown code with an unknown retry": () => problem(409, "newer", { executed: "no", retry: "later" }),
  "an unknown code whose body is not a problem": () => problem(410, "newer", { retry: "never", headers: { "content-type": "text/plain" } }),
};

for (const [name, stranger] of Object.entries(NOT_DEFINITIVE)) {
  test(`not definitive, so it is sent again under the same id: ${name}`, async (t) => {
    const { semel, server } = await answeredInstead(t, [stranger, stranger]);
    const response = await deposit(semel);
    assert.deepEqual([response.status, (await response.json()).ran], [200, 1]);
    assert.equal(server.attempts.length, 3);
    assert.equal(new Set(server.attempts.map(({ id, firstSent }) => id + firstSent)).size, 1);
  });
}

test("an outcome with content-length 0 has an empty body, and the change is not sent again", async (t) => {
  const empty = () => new Response(null, { headers: { "content-length": "0", "semel-status": "executed" } });
  const { semel, server } = await answeredInstead(t, [empty]);
  assert.deepEqual([await (await deposit(semel)).text(), server.attempts.length], ["", 1]);
});

for (const status of [200, 201, 202, 206, 299, 400, 401, 403, 404, 408, 409, 410, 422, 429, 499]) {
  test(`an outcome of ${status} is a Response, even if it looks like a problem`, async (t) => {
    const body = '{"code":"in-flight","executed":"unknown","retry":"same-id"}';
    const headers = { "content-type": "application/problem+json", "semel-status": status % 2 ? "executed" : "replayed", "x-own": "ä", "retry-after": "5" };
    const { semel, server } = await answeredInstead(t, [() => new Response(body, { status, headers })]);
    const response = await semel.fetch("/accounts/a/deposit?q=1", { method: "POST" });
    assert.ok(response instanceof Response);
    assert.deepEqual(
      [response.status, response.ok, response.url, response.redirected, response.headers.get("x-own"), await response.text()],
      [status, status < 300, "https://worker.test/accounts/a/deposit?q=1", false, "ä", body],
    );
    assert.equal(server.attempts.length, 1);
  });
}

for (const status of [204, 205]) {
  test(`an outcome of ${status} has no body`, async (t) => {
    const { semel } = await answeredInstead(t, [() => new Response(null, { status, headers: { "semel-status": "executed" } })]);
    const response = await deposit(semel);
    assert.deepEqual([response.status, response.body], [status, null]);
  });
}

test("the body of an outcome comes byte for byte", async (t) => {
  const bytes = Uint8Array.from({ length: 1024 }, (_, index) => index % 256);
  const { semel } = await answeredInstead(t, [() => new Response(bytes, { headers: { "semel-status": "executed" } })]);
  assert.deepEqual(new Uint8Array(await (await deposit(semel)).arrayBuffer()), bytes);
});

test("a definitive problem rejects the call with a SemelError that has what the server said", async (t) => {
  const members = { executed: "yes", retry: "never", detail: `said\nin two lines${"☃".repeat(500)}`, extra: { nested: [1] } };
  const { semel, server } = await answeredInstead(t, [() => problem(410, "acknowledged", members)]);
  const error = await rejection(deposit(semel));
  assert.ok(error instanceof SemelError && error instanceof Error && !(error instanceof OutcomeUnknownError));
  const { name, code, executed, retry, requestId } = error;
  assert.deepEqual({ name, code, executed, retry, requestId }, { name: "AcknowledgedError", code: "acknowledged", executed: "yes", retry: "never", requestId: server.attempts[0].id });
  assert.deepEqual(error.problem, { type: "urn:semel:problem:acknowledged", title: "acknowledged", status: 410, code: "acknowledged", ...members });
  assert.match(error.message, /acknowledged.*said in two lines☃{500}$/);
  assert.match(String(error), /^AcknowledgedError: /);
  assert.ok(error.stack.includes("AcknowledgedError"));
  assert.deepEqual(await until(async () => (await semel.pending()).length === 0, "it is no longer pending"), true);
});

test("a problem of an unknown code is definitive if it says never, and its executed is the error's", async (t) => {
  const told = [
    [{ executed: "no" }, "no"],
    [{ executed: "yes" }, "yes"],
    [{ executed: "unknown" }, "unknown"],
    [{ executed: "perhaps" }, "unknown"],
    [{ executed: undefined }, "unknown"],
  ];
  for (const [members, executed] of told) {
    const { semel } = await answeredInstead(t, [() => problem(418, "newer", { retry: "never", ...members })]);
    const error = await rejection(deposit(semel));
    assert.deepEqual([error.constructor, error.code, error.executed, error.retry], [SemelError, "newer", executed, "never"]);
  }
});

test("a definitive problem without valid JSON takes executed and retry from the table of codes", async (t) => {
  const headers = { "semel-status": "poisoned", "content-type": "application/problem+json" };
  const { semel } = await answeredInstead(t, [() => new Response("{", { status: 410, headers })]);
  const { code, executed, retry, problem: parsed } = await rejection(deposit(semel));
  assert.deepEqual({ code, executed, retry, parsed }, { code: "poisoned", executed: "no", retry: "never", parsed: undefined });
});

test("the SDK reacts to every code as the table in PROTOCOL.md says", async (t) => {
  assert.ok(CODES.length > 25, `${CODES.length} codes were read`);
  for (const { code, status, executed, retry } of CODES) {
    const told = [];
    const { semel, server } = await outbox(t, { onpaused: (paused) => told.push(paused) });
    server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? problem(status, code, { executed, retry }) : serve());
    const answered = deposit(semel);
    if (retry === "never") {
      const error = await rejection(answered);
      assert.deepEqual([error.code, error.executed, error.retry, server.attempts.length], [code, executed, "never", 1]);
      continue;
    }
    if (retry === "after-fix") {
      await until(() => told.length === 1, `${code} pauses`);
      // The server says that this attempt did not run. Of the request nobody can say that.
      assert.deepEqual([told[0].error.code, told[0].error.executed, told[0].error.retry, server.attempts.length], [code, "unknown", "after-fix", 1]);
      told[0].resume();
    }
    assert.equal((await answered).status, 200, code);
    assert.deepEqual([server.attempts.length, told.length], [2, retry === "after-fix" ? 1 : 0], code);
  }
});

test("executed is no only if retry is never, also in onpaused and in the client's own errors", async (t) => {
  const { semel, server } = await outbox(t, { giveUpAfterMs: 30, onpaused: ({ error }) => assert.equal(error.executed, "unknown") });
  server.each = (call, serve) => (call.kind === "change" ? problem(400, "key-invalid", { executed: "no", retry: "after-fix" }) : serve());
  const { code, executed, retry } = await rejection(deposit(semel));
  assert.deepEqual({ code, executed, retry }, { code: "gave-up", executed: "unknown", retry: "same-id" });
});

test("the codes of the protocol in index.d.ts are those of PROTOCOL.md's table, in its order", () => {
  assert.deepEqual(unionOf("ProtocolCode"), CODES.map(({ code }) => code));
});

test("the client's codes in index.d.ts are those of the core and closed, and each is explained", () => {
  const rows = [...FAILURES.matchAll(/^ {4}\w+ "([a-z-]+)" (No|Yes|Unknown) (SameId|AfterFix|Never) "/gm)];
  // The code `closed` is not in the core: the JavaScript around the module reports it, because the module may have trapped.
  const [code, executed, retry] = CLOSED;
  assert.deepEqual([executed, retry], ["unknown", "same-id"]);
  rows.splice(-1, 0, [undefined, code, "Unknown", "SameId"]);
  const codes = unionOf("ClientCode");
  assert.deepEqual(codes, rows.map(([, code]) => code));
  assert.ok(codes.length > 3);
  for (const code of codes) assert.ok(TYPES.includes(` * - \`${code}\`: `), code);
  const unknown = rows.filter(([, , executed]) => executed === "Unknown").map(([, code]) => code);
  const [, told] = /Nobody can tell whether the request ran: ([^.]*)\./.exec(TYPES);
  assert.deepEqual([...told.matchAll(/`([a-z-]+)`/g)].map(([, code]) => code), [...unknown, "outcome-unknown"], "what OutcomeUnknownError stands for");
});
