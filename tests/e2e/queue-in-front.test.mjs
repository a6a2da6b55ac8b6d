// A queue's messages, in front of an HTTP API: each is executed there once, however often it is delivered. A message in doubt becomes a dead letter.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { until } from "./lossy.mjs";
import { otherSide } from "./other-side.mjs";
import { deadLetters, deliver } from "./queue-side.mjs";
import { scriptWorker } from "./script.mjs";
import { serve } from "./server.mjs";

const LIMIT = { timeout: 120_000 };
const ROUTES = [{ path: "/resend/*", inDoubt: "resend", dedupSeconds: 600 }];

const side = await deadLetters(after);
const other = await otherSide(after, { knowsIds: true });
const folder = await scriptWorker(after, join(ROOT, "tests/e2e/queue/in-front.js"), "upstream");
const vars = { SEMEL_UPSTREAM: other.url, SEMEL_UPSTREAM_ROUTES: JSON.stringify(ROUTES) };
const server = await serve(after, "upstream", vars, { folder, deadLetters: side.address, reachesLocal: true });

const order = () => ({ id: randomUUID(), body: { ref: randomUUID() } });
const asked = ({ body: { ref } }) => other.requests.filter(({ body }) => body.includes(ref));

test("a message is sent to the other side once however often it is delivered, and is acknowledged", LIMIT, async () => {
  const message = order();
  for (const attempts of [1, 2]) assert.deepEqual(await deliver(server, "report", [{ ...message, attempts }]), { acknowledged: [message.id], again: {} });
  const twice = order();
  await Promise.all([deliver(server, "report", [twice, twice]), deliver(server, "report", [twice])]);
  await until(async () => (await deliver(server, "report", [twice])).acknowledged.length === 1, "it is acknowledged");
  for (const each of [message, twice]) {
    const [{ headers }, ...more] = asked(each);
    assert.deepEqual([more.length, headers["idempotency-key"], headers["semel-principal"]], [0, each.id, '"semel:queue"']);
  }
  assert.equal(side.letters.length, 0);
});

test("a refused message and one in doubt are dead letters, and the one in doubt is not sent again", LIMIT, async () => {
  const [refused, lost] = [order(), order()];
  other.trouble.push((response) => response.writeHead(409).end('{"error":"sold out"}'));
  assert.deepEqual((await deliver(server, "report", [refused])).acknowledged, [refused.id]);
  assert.deepEqual(side.letters.pop().reason, { code: "refused", status: 409, executed: "yes", retry: "never", detail: '{"error":"sold out"}' });
  other.trouble.push((response) => response.destroy());
  for (const attempts of [1, 2]) {
    assert.deepEqual((await deliver(server, "report", [{ ...lost, attempts }])).acknowledged, [lost.id]);
    const { code, status, executed } = side.letters.pop().reason;
    assert.deepEqual([code, status, executed], ["outcome-unknown", 409, "unknown"]);
  }
  assert.equal(asked(lost).length, 1);
});

test("if the other side knows ids, lost answers and kill -9 make one order of a message, and no dead letter", LIMIT, async () => {
  const messages = Array.from({ length: 12 }, order);
  const left = new Map(messages.map((message) => [message.id, message]));
  other.trouble.push(...Array.from({ length: 8 }, (_, at) => (at % 2 === 0 ? (response) => response.destroy() : (response) => response.writeHead(503).end())));
  const acknowledged = async () => {
    const heard = await deliver(server, "resend", [...left.values()]).catch(() => ({ acknowledged: [] }));
    for (const id of heard.acknowledged) left.delete(id);
  };
  // The kill comes when the other side has seen the first message, and not after some time.
  const first = acknowledged();
  await until(() => asked(messages[0]).length > 0, "the first is on its way");
  await server.restart();
  await first;
  while (left.size > 0) await acknowledged();
  for (const { body } of messages) assert.equal(other.made.get(body.ref), 1);
  assert.equal(side.letters.length, 0);
});
