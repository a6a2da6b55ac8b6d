// Changes that are committed together share commits, and each has its own answer. On workerd; `turns.test.mjs` has the order in which they wait.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { until } from "./lossy.mjs";
import { serve } from "./server.mjs";

const LIMIT = { timeout: 60_000 };

test("on workerd: of a hundred changes at once each has its own answer, though some fail and some end the module", LIMIT, async (t) => {
  const server = await serve((end) => t.after(end), "probe");
  const change = (path, id = randomUUID()) => server.send("POST", path, { id, key: '"k"', body: id, firstSent: nowS() });
  assert.equal((await change("/echo")).semel, "executed");
  const ids = Array.from({ length: 40 }, () => randomUUID());
  // Each change is sent twice. Among them are changes that are rolled back by themselves.
  const all = await Promise.all(ids.flatMap((id, at) => [change("/echo", id), change("/echo", id), ...(at % 4 === 0 ? [change("/fail"), change(at % 8 === 0 ? "/panic" : "/echo")] : [])]));
  const count = (what) => all.filter(({ status, semel }) => `${status} ${semel}` === what).length;
  assert.deepEqual([count("200 executed"), count("200 replayed"), count("500 rolled-back")], [45, 40, 15], all.map(({ status, semel }) => `${status} ${semel}`).join());
  for (const [at, id] of ids.entries()) assert.ok(all.filter(({ text }) => text === id).length === 2, `${at} has another's answer`);
  // The read that asks counts itself too, but that is rolled back.
  assert.equal(Number((await server.send("GET", "/runs", { key: '"k"' })).text), 1 + 45 + 1);
});

test("on workerd: changes that are released together are executed once each, with their own answers, and share commits", LIMIT, async (t) => {
  const server = await serve((end) => t.after(end), "probe");
  const ids = Array.from({ length: 60 }, () => randomUUID());
  await asked(server, "first");
  // Each waits where it has reached the Worker, however slowly, until all have come.
  const coming = ids.map((id) => asked(server, id, { "probe-gate": "all" }));
  await until(async () => (await server.send("GET", "/probe/came")).json === 1 + ids.length, "all have come");
  await server.send("POST", "/probe/release", { body: "all" });
  const all = await Promise.all(coming);
  assert.deepEqual(all.map(({ semel, text }) => [semel, text]), ids.map((id) => ["executed", id]));
  assert.equal(Number((await server.send("GET", "/runs", { key: '"k"' })).text), 1 + 60 + 1);
  assert.ok(syncsOf(await asked(server, "last")) < 60, "some have shared a commit");
});

test("on workerd: if a client waits for each answer, few turns ask whether their commit is durable", LIMIT, async (t) => {
  const server = await serve((end) => t.after(end), "probe");
  const after = async (count) => {
    for (let each = 1; each < count; each += 1) await asked(server, randomUUID());
    return syncsOf(await asked(server, randomUUID()));
  };
  const [first, then] = [await after(20), await after(32)];
  // A change may come while the commit of the one before it is under way. Then it asks for a commit too.
  assert.ok(first >= 16 && first <= 20 && then > first && then - first <= 12, `${first}, ${then}`);
});

/** The answer to a change, with the number of times that the object had asked by then whether all is durable. */
const asked = (server, id, headers) => server.send("POST", "/echo", { id, key: '"k"', body: id, firstSent: nowS(), headers: { "probe-object": "counts", ...headers } });
const syncsOf = ({ headers }) => JSON.parse(headers.get("probe-counts")).syncs;
/** The first-sent of a new request. A request without one may have crashed an earlier object, and so runs alone. */
const nowS = () => Math.floor(Date.now() / 1000);
