// Tests answers with a `Content-Encoding`: the caller can read them, by whichever way they came (`fetch`, a batch, a socket).

import assert from "node:assert/strict";
import { test } from "node:test";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { Semel } from "../../sdk/npm/node.js";
import { AT_ONCE, burst, gathering, overlapping } from "./gathering.mjs";
import { serveStub } from "./http-stub.mjs";
import { deposit, outbox, SessionStub } from "./session-stub.mjs";
import { deposit as depositTo, outbox as plainOutbox, within } from "./stub.mjs";

const ENCODED = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync };
/** The encodings that each test asks for, in this order. The body of the last is cut short. */
const ENCODINGS = [undefined, "gzip", "br", undefined, "deflate", "gzip, gzip", "cut"];
const BY_THEMSELVES = ["br", "gzip, gzip", "cut"];

/** An answer of a batch as the key's object stores it if the handler has encoded the body. */
function encoded(answer, encoding) {
  if (!encoding) return answer;
  const body = (ENCODED[encoding] ?? gzipSync)(answer.body).subarray(0, encoding === "cut" ? 12 : undefined);
  return { ...answer, headers: { ...answer.headers, "content-encoding": encoding === "cut" ? "gzip" : encoding }, body: { base64: body.toString("base64") } };
}

test("in a session, encoded answers that can be decoded are, and the others are fetched by themselves", async (t) => {
  for (const transport of ["http", "socket"]) {
    const server = new SessionStub();
    const batch = server.batch.bind(server);
    server.batch = (elements) => JSON.stringify(JSON.parse(batch(elements)).map((answer, index) => encoded(answer, elements[index].headers["x-as"])));
    const before = globalThis.WebSocket;
    t.after(() => (globalThis.WebSocket = before));
    globalThis.WebSocket = class {
      constructor() {
        queueMicrotask(() => this.onopen());
      }
      send(text) {
        const { frame, requests } = JSON.parse(text);
        if (requests) queueMicrotask(() => this.onmessage({ data: JSON.stringify({ frame, now: 1, answers: JSON.parse(server.batch(requests)) }) }));
      }
      close() {}
    };
    const { semel } = await outbox(t, { server });
    const session = await semel.session("accounts/a", "s", { transport, onpaused: assert.fail });
    const calls = ENCODINGS.map(async (encoding, n) => {
      const answer = await deposit(session, `${n}`, encoding && { headers: { "x-as": encoding } });
      return [answer.status, answer.headers.get("content-encoding"), await answer.json()];
    });
    const answers = await within(Promise.all(calls), "all are answered");
    // An answer that was asked for by itself comes from `fetch`, which has decoded it.
    assert.deepEqual(answers, ENCODINGS.map((encoding, n) => [200, BY_THEMSELVES.includes(encoding) ? null : (encoding ?? null), { ran: `${n}` }]), transport);
    assert.deepEqual(server.effects, ENCODINGS.map((_, n) => `${n}`), "each has run once, in order");
    const alone = server.frames.filter(({ path }) => !path.endsWith("/batch")).map(({ headers }) => headers.get("x-as"));
    // By HTTP, the first request also goes by itself, but it has no encoding.
    assert.deepEqual(alone.filter(Boolean), BY_THEMSELVES);
  }
});

test("an encoded answer whose decoded body is empty is an answer with an empty body", async (t) => {
  for (const encoding of Object.keys(ENCODED)) {
    const { stub, url } = await serveStub(t);
    stub.each = async (call, serve) => {
      if (call.kind !== "change") return serve();
      const { status, headers } = await serve();
      return new Response(ENCODED[encoding](""), { status, headers: { ...Object.fromEntries(headers), "content-encoding": encoding } });
    };
    const semel = await Semel.open({ url, durability: "memory", retryIntervalMs: 10 });
    t.after(() => semel.close());
    const answer = await within(depositTo(semel), `it is answered in ${encoding}`);
    assert.deepEqual([answer.status, await answer.text(), answer.headers.get("content-encoding"), stub.attempts.length], [200, "", encoding, 1]);
  }
});

test("an encoded answer that is cut off before its body is no answer, and the change is sent again", async (t) => {
  const { semel, server } = await plainOutbox(t);
  const headers = { "semel-status": "executed", "content-encoding": "gzip", "content-length": "21" };
  server.each = (call, serve) => (call.kind === "change" && call.n === 1 ? new Response(null, { headers }) : serve());
  assert.equal((await within(depositTo(semel), "it is answered")).status, 200);
  assert.equal(server.attempts.length, 2);
});

test("in a batch of an outbox, encoded answers that can be decoded are, and the others are fetched by themselves", async (t) => {
  const { semel, server } = await gathering(t, { onpaused: assert.fail });
  server.each = async (call, serve) => {
    const answer = await serve();
    if (call.kind !== "batch") return answer;
    const answers = (await answer.json()).map((each, index) => encoded(each, call.json[index].headers["x-as"]));
    return new Response(JSON.stringify(answers), { headers: answer.headers });
  };
  const asked = [...Array(AT_ONCE), ...ENCODINGS];
  const answers = await burst({ semel, server }, asked.length, (n) => overlapping(semel, { headers: asked[n] && { "x-as": asked[n] } }));
  assert.deepEqual(server.of("batch").map(({ json }) => json.length), [ENCODINGS.length]);
  for (const answer of answers) assert.deepEqual([answer.status, (await answer.json()).ran], [200, 1]);
  const alone = server.attempts.slice(AT_ONCE).map(({ headers }) => headers.get("x-as"));
  assert.deepEqual(alone, BY_THEMSELVES);
});

test("in a batch of an outbox, an empty body with a content-encoding is an answer, and is not fetched again", async (t) => {
  const { semel, server } = await gathering(t, { onpaused: assert.fail });
  server.each = async (call, serve) => {
    const answer = await serve();
    if (call.kind !== "batch") return answer;
    const answers = (await answer.json()).map(({ status, headers }) => ({ status, headers: { ...headers, "content-encoding": "gzip" }, body: "" }));
    return new Response(JSON.stringify(answers), { headers: answer.headers });
  };
  const answers = await burst({ semel, server }, AT_ONCE + 5);
  for (const answer of answers.slice(AT_ONCE)) assert.deepEqual([answer.status, await answer.text()], [200, ""]);
  assert.deepEqual([server.of("batch").length, server.attempts.length], [1, AT_ONCE]);
});
