// Tests `gather`, the `fetch` that puts requests into batches, by itself and step by step, without an outbox.

import assert from "node:assert/strict";
import { test } from "node:test";
import { gather } from "../../sdk/js/gathered.js";
import { many, turns } from "./gathering.mjs";
import { leavePage, page } from "./page-stub.mjs";
import { clock, lost, rejection, URL_OF_STUB, within } from "./stub.mjs";

/**
 * A `fetch` that gathers, without an outbox. `send` sends a request with an id: it returns the answer, and what aborts the request. `answer` gives
 * the server's answer to each call.
 */
function bare(answer) {
  const calls = [];
  const fetch = async (url, init) => {
    const call = { url, init, ids: url.endsWith("/batch") ? JSON.parse(init.body).map(({ id }) => id) : [init.headers.get("idempotency-key").slice(1, -1)] };
    calls.push(call);
    return answer(call);
  };
  const setup = { origin: URL_OF_STUB, fetch };
  gather(setup);
  const send = (id, { ack, key = "k", body = new Uint8Array() } = {}) => {
    const controller = new AbortController();
    const headers = new Headers({ "semel-key": `"${key}"`, "idempotency-key": `"${id}"`, "semel-first-sent": "@1", "semel-deadline": "2", ...(ack && { "semel-ack": ack }) });
    const answered = setup.fetch(`${URL_OF_STUB}/x`, { method: "POST", headers, body, signal: controller.signal });
    answered.catch(() => {});
    return { answered, abort: () => controller.abort(new Error(`${id} is over`)) };
  };
  return { calls, send, setup, sent: () => calls.map(({ ids }) => ids.join("")) };
}

/** Sends as many requests as may be under way at the same time. */
async function busy(send) {
  for (const id of ["a", "b", "c", "d"]) send(id);
  await turns();
}

/** What a key's object answers to a call of `bare`. */
const executed = ({ url, ids }) => {
  const said = { "semel-status": "executed", "semel-key": '"k"' };
  return new Response(url.endsWith("/batch") ? JSON.stringify(ids.map((body) => ({ status: 200, headers: said, body }))) : ids[0], { headers: said });
};

/** Each call is answered only when `release` is called with one of its ids. */
function byHand() {
  const held = [];
  const answer = (call) => new Promise((resolve, reject) => held.push({ call, resolve, reject }));
  const release = async (id, given = executed) => {
    const { call, resolve, reject } = held.find(({ call }) => call.ids.includes(id));
    Promise.resolve(call).then(given).then(resolve, reject);
    await turns();
  };
  return { answer, release };
}

test("a few requests in one turn go each by itself, and more than may be under way go in one batch", async () => {
  const { answer, release } = byHand();
  const { send, sent } = bare(answer);
  for (const id of ["a", "b"]) send(id);
  await null;
  assert.deepEqual(sent(), ["a", "b"]);
  for (const id of ["c", "d", "e"]) send(id);
  await null;
  assert.deepEqual(sent().slice(2), ["cde"]);
  await release("a");
  for (const id of ["f", "g"]) send(id);
  await null;
  assert.deepEqual(sent().slice(3), ["f", "g"]);
});

test("an aborted request ends at once and its batch goes on; aborting the last one of a batch aborts the batch", async () => {
  const { answer, release } = byHand();
  const { send, sent, calls } = bare(answer);
  await busy(send);
  assert.deepEqual(sent(), ["a", "b", "c", "d"]);
  const [e, f, g] = ["e", "f", "g"].map((id) => send(id));
  await release("a");
  assert.deepEqual(sent(), ["a", "b", "c", "d", "efg"]);
  e.abort();
  assert.equal((await rejection(e.answered)).message, "e is over");
  const { signal } = calls.at(-1).init;
  assert.equal(signal.aborted, false);
  await release("f");
  assert.deepEqual([await (await f.answered).text(), await (await g.answered).text()], ["f", "g"]);
  const last = ["h", "i", "j"].map((id) => send(id));
  await turns();
  assert.deepEqual(sent().slice(5), ["hij"]);
  for (const { abort } of last) abort();
  assert.equal(calls.at(-1).init.signal.aborted, true, "by a fetch that knows of no signal, it would hang for ever");
  await turns();
  send("k");
  send("l");
  assert.deepEqual(sent().slice(6), ["k", "l"], "what hangs holds up nobody");
});

test("a request that is aborted before it is sent is never sent", async () => {
  const { answer, release } = byHand();
  const { send, sent } = bare(answer);
  await busy(send);
  const [e, f, g] = ["e", "f", "g"].map((id) => send(id));
  f.abort();
  assert.equal((await rejection(f.answered)).message, "f is over");
  await release("a");
  assert.deepEqual(sent().slice(4), ["eg"]);
  await release("g");
  assert.deepEqual([await (await e.answered).text(), await (await g.answered).text()], ["e", "g"]);
  send("h");
  send("i").abort();
  await release("b");
  assert.deepEqual(sent().slice(5), ["h"], "one was free, and the other is over");
});

test("after a batch is refused whole its aborted requests are not sent again, and its answers acknowledge nothing", async () => {
  for (const [status, again] of [[503, []], [500, []], [429, []], [404, ["e", "f"]], [499, ["e", "f"]]]) {
    const { answer, release } = byHand();
    const { send, sent } = bare(answer);
    await busy(send);
    const [e, f, g] = ["e", "f", "g"].map((id) => send(id));
    await release("a");
    g.abort();
    const refusal = new Response("{}", { status, headers: { "semel-status": "unavailable", "semel-key": '"k"', "retry-after": "7" } });
    await release("e", () => refusal);
    assert.deepEqual(sent().slice(5), again);
    if (again.length > 0) continue;
    for (const { answered } of [e, f]) {
      const { status: told, headers } = await answered;
      assert.deepEqual([told, headers.get("semel-key"), headers.get("retry-after")], [status, null, "7"]);
    }
  }
});

test("once the page is offline, a held request or one of a refused batch is lost and not sent", async (t) => {
  for (const isBatch of [true, false]) {
    const { offline } = page();
    t.after(leavePage);
    const { answer, release } = byHand();
    const { send, sent } = bare(answer);
    await busy(send);
    const held = (isBatch ? ["e", "f"] : ["e"]).map((id) => rejection(send(id).answered));
    if (isBatch) {
      await release("a");
      offline();
      await release("e", () => new Response("", { status: 403 }));
    } else {
      offline();
      await release("a");
    }
    assert.deepEqual((await Promise.all(held)).map(String), held.map(() => "TypeError: offline"));
    assert.deepEqual(sent(), ["a", "b", "c", "d", ...(isBatch ? ["ef"] : [])]);
  }
});

test("after a refused batch all held requests go at once by themselves, however many are under way", async () => {
  const { answer, release } = byHand();
  const { send, sent } = bare(answer);
  await busy(send);
  for (const id of ["e", "f"]) send(id);
  await release("a");
  const held = ["g", "h", "i", "j", "k", "l"];
  for (const id of held) send(id);
  // Requests to another key are held as well.
  for (const id of ["1", "2", "3", "4"]) send(id, { key: "other" });
  await turns();
  for (const id of ["m", "n"]) send(id, { key: "other" });
  await turns();
  assert.deepEqual(sent().slice(4), ["ef", "1", "2", "3", "4"]);
  await release("e", () => new Response("", { status: 404 }));
  assert.deepEqual(sent().slice(9).sort(), ["e", "f", ...held, "m", "n"]);
});

test("after refused batches the next is tried after 1 minute, then twice as long each time, up to 64 minutes", async (t) => {
  const later = clock(t);
  const { send, calls } = bare(({ url }) => new Response("", { status: url.endsWith("/batch") ? 404 : 200 }));
  const tries = async () => {
    calls.length = 0;
    for (const id of "abcdef") send(id);
    await turns();
    return calls.some(({ url }) => url.endsWith("/batch"));
  };
  for (const minutes of [1, 2, 4, 8, 16, 32, 64, 64, 64]) {
    assert.equal(await tries(), true);
    later((minutes - 0.5) * 60_000);
    assert.equal(await tries(), false, `before ${minutes} minutes`);
    later(0.5 * 60_000);
  }
});

test("an aborted request that a batch refuses is not sent again by itself", async () => {
  const { answer, release } = byHand();
  const { send, sent } = bare(answer);
  await busy(send);
  const [, f] = ["e", "f", "g"].map((id) => send(id));
  await release("a");
  f.abort();
  const headers = { "semel-status": "key-invalid", "content-type": "application/problem+json" };
  const refused = { status: 400, headers, body: '{"code":"key-invalid","executed":"no","retry":"after-fix"}' };
  await release("e", ({ ids }) => new Response(JSON.stringify(ids.map(() => refused)), { headers: { "semel-status": "executed" } }));
  assert.deepEqual(sent().slice(5), ["e", "g"]);
});

test("an outcome that is a problem of the application's own does not count as a refusal of the batch", async () => {
  const { answer, release } = byHand();
  const { send, sent } = bare(answer);
  await busy(send);
  const [e] = ["e", "f"].map((id) => send(id));
  await release("a");
  const headers = { "semel-status": "executed", "content-type": "application/problem+json" };
  const body = '{"title":"the card was declined","retry":"after-fix"}';
  await release("e", ({ ids }) => new Response(JSON.stringify(ids.map(() => ({ status: 422, headers, body }))), { headers: { "semel-status": "executed" } }));
  assert.deepEqual([(await e.answered).status, await (await e.answered).text()], [422, body]);
  await busy(send);
  for (const id of ["g", "h"]) send(id);
  await release("b");
  assert.deepEqual(sent().at(-1), "gh", "batches go on");
});

test("a refusal that is to be tried again is the answer of its request, which is not sent by itself, and batches go on", async () => {
  const { answer, release } = byHand();
  const { send, sent } = bare(answer);
  await busy(send);
  const [e] = ["e", "f"].map((id) => send(id));
  await release("a");
  const headers = { "semel-status": "in-flight", "content-type": "application/problem+json" };
  const refused = { status: 409, headers, body: '{"code":"in-flight","executed":"unknown","retry":"same-id"}' };
  await release("e", ({ ids }) => new Response(JSON.stringify(ids.map(() => refused)), { headers: { "semel-status": "executed" } }));
  assert.equal((await within(e.answered, "it has its answer")).status, 409);
  for (const id of ["g", "h"]) send(id);
  await release("b");
  assert.deepEqual(sent(), ["a", "b", "c", "d", "ef", "gh"]);
});

test("a request that is lost by itself does not keep others from a batch", async () => {
  const { answer, release } = byHand();
  const { send, sent } = bare(answer);
  await busy(send);
  for (const id of ["e", "f"]) send(id);
  await release("a", lost);
  assert.deepEqual(sent().slice(4), ["ef"]);
});

test("a batch has at most 64 requests and 512 KiB of bodies, and a larger request goes at once by itself", async () => {
  const { answer, release } = byHand();
  const { send, sent, calls } = bare(answer);
  await busy(send);
  for (let n = 0; n < 100; n += 1) send(`n${n},`);
  await release("a");
  assert.deepEqual([calls[4].ids.length, calls.length], [64, 5]);
  const body = new Uint8Array(200 << 10);
  for (const id of ["x", "y", "z"]) send(id, { body });
  send("large", { body: new Uint8Array((512 << 10) + 1) });
  assert.deepEqual(sent().slice(5), ["large"]);
  await release("b");
  assert.deepEqual([calls[6].ids.length, calls[6].ids.at(-1), calls.length], [38, "y", 7]);
  await release("c");
  assert.deepEqual(sent().slice(7), ["z"]);
});

test("a batch takes no further request once its acknowledgements would exceed 64 ids or 4,096 bytes", async () => {
  const acks = (count, length = 1) => many(count, (n) => `"${`${n}`.padEnd(length, "x")}";until=1`).join(", ");
  const filled = (bytes) => acks(1, bytes - acks(1, 1).length + 1);
  const long = filled(2_000);
  for (const [one, other, isTogether] of [
    [acks(63), acks(1), true],
    [acks(64), acks(1), false],
    [long, filled(4_096 - 2_000 - 2), true],
    [long, filled(4_096 - 2_000 - 1), false],
  ]) {
    const { answer, release } = byHand();
    const { send, sent, calls } = bare(answer);
    await busy(send);
    send("e", { ack: one });
    send("f", { ack: other });
    send("g");
    await release("a");
    assert.deepEqual(sent().slice(4), [isTogether ? "efg" : "e"]);
    await release("b");
    assert.deepEqual(sent().slice(5), isTogether ? [] : ["fg"]);
    const said = calls.slice(4).map(({ init }) => new Headers(init.headers).get("semel-ack"));
    assert.deepEqual(said, isTogether ? [`${one}, ${other}`] : [one, other]);
  }
});

test("an acknowledgement whose id looks like many acknowledgements keeps its request out of a batch", async () => {
  const { answer, release } = byHand();
  const { send, sent, calls } = bare(answer);
  await busy(send);
  const ack = `"${";until=1".repeat(80)}";until=1`;
  for (const id of ["e", "f"]) send(id, { ack });
  await release("a");
  await release("b");
  assert.deepEqual(sent().slice(4), ["e", "f"]);
  assert.ok(calls.slice(4).every(({ init }) => init.headers.get("semel-ack") === ack));
  for (const id of ["g", "h"]) send(id);
  await turns();
  await release("c");
  assert.deepEqual(sent().slice(6), ["gh"]);
});

test("reads, control requests, places of a session and changes without a key are passed on unchanged", async () => {
  const calls = [];
  const setup = { origin: URL_OF_STUB, fetch: async (...given) => void calls.push(given) };
  gather(setup);
  const { signal } = new AbortController();
  const headers = (own) => ({ method: "POST", headers: new Headers(own), body: "x", signal });
  const others = [
    [new Request(`${URL_OF_STUB}/x`, { headers: { "semel-key": '"k"' } }), { signal }],
    [`${URL_OF_STUB}/semel/v1/health`, { method: "GET", headers: new Headers(), signal }],
    [`${URL_OF_STUB}/semel/v1/keys/k/cancel`, headers({ "idempotency-key": '"cancel-1"' })],
    [`${URL_OF_STUB}/semel/v1/keys/k/acks`, headers({ "content-type": "application/json" })],
    [`${URL_OF_STUB}/x`, headers({ "semel-key": '"k"', "semel-session": '"s";epoch=1;seq=1' })],
    [`${URL_OF_STUB}/x`, headers({ "idempotency-key": '"of no key"' })],
  ];
  for (let round = 0; round < 3; round += 1) for (const each of others) setup.fetch(...each);
  assert.equal(calls.length, 3 * others.length);
  for (const [index, given] of calls.entries()) assert.deepEqual(given, others[index % others.length]);
});
