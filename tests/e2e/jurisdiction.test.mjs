// SEMEL_JURISDICTION on workerd: keys, the messages between them, sockets and the registry are all in the place that is set.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { until } from "./lossy.mjs";
import { scriptWorker } from "./script.mjs";
import { serve } from "./server.mjs";
import { open } from "./websocket.mjs";

const PLACED = { SEMEL_JURISDICTION: "eu", SEMEL_REPORT_SECONDS: "1" };

/**
 * A Worker whose keys say where they are, count, and make another key count; a shard of the registry logs where it is. The runtime has jurisdictions
 * only at Cloudflare, so objects of other bindings stand for the objects in one.
 */
const SOURCE = `
import { SemelObject, SemelRegistry as Registry, worker } from "semel/worker";

function within(everywhere, eu) {
  const jurisdiction = (place) => {
    if (place !== "eu") throw new TypeError("no such jurisdiction: " + place);
    return eu;
  };
  return { idFromName: (name) => everywhere.idFromName(name), get: (id) => everywhere.get(id), jurisdiction };
}
const placed = (env) => ({ ...env, SEMEL: within(env.SEMEL, env.KEYS_EU), REGISTRY: within(env.REGISTRY, env.REGISTRY_EU) });

export class Keys extends SemelObject {
  static key = "/keys/:key/*";
  static schema = ["CREATE TABLE count (n INTEGER NOT NULL); INSERT INTO count VALUES (0)"];
  place = "everywhere";
  constructor(ctx, env) { super(ctx, placed(env)); }
  handle(ctx, { method, segments }) {
    const [{ sql }, { place }] = [ctx, this];
    if (method === "GET") return { status: 200, body: { place, ...sql.exec("SELECT n FROM count").one() } };
    if (segments[2] === "tell") ctx.emit("keys/" + segments[3], { path: "/keys/" + segments[3], body: {} });
    return { status: 200, body: { place, ...sql.exec("UPDATE count SET n = n + 1 RETURNING n").one() } };
  }
}
export class KeysEu extends Keys { place = "eu"; }

export class SemelRegistry extends Registry {
  place = "everywhere";
  constructor(ctx, env) { super(ctx, placed(env)); }
  report(shard, report) {
    console.log("a shard is in " + this.place);
    return super.report(shard, report);
  }
}
export class RegistryEu extends SemelRegistry { place = "eu"; }

const its = worker(Keys);
export default { fetch: (request, env, ctx) => its.fetch(request, placed(env), ctx) };
`;

const source = await mkdtemp(join(tmpdir(), "semel-source-"));
after(() => rm(source, { recursive: true, force: true }));
await writeFile(join(source, "index.ts"), SOURCE);
const folder = await scriptWorker(after, join(source, "index.ts"));
const more = { folder, objects: { SEMEL: "Keys", KEYS_EU: "KeysEu", REGISTRY: "SemelRegistry", REGISTRY_EU: "RegistryEu" } };

/** Reads over a socket, which finds its object by other code than a request does. */
async function bySocket(server, path) {
  const { socket } = await open(server.url, `/semel/v1/keys/${encodeURIComponent(path.slice(1))}/socket`);
  socket.send(JSON.stringify({}));
  socket.send(JSON.stringify({ frame: 1, requests: [{ method: "GET", path }] }));
  const { answers } = JSON.parse(await socket.next());
  socket.destroy();
  return answers[0].body;
}

test("keys, the targets of their effects, sockets and the registry are in the jurisdiction that is set", { timeout: 120_000 }, async (t) => {
  const server = await serve((end) => t.after(end), "script", PLACED, more);
  const id = randomUUID();
  const early = Math.floor(Date.now() / 1000) - 60;
  const tell = () => server.send("POST", "/keys/a/tell/b", { id, firstSent: early });
  assert.deepEqual((await tell()).json, { place: "eu", n: 1 });
  const again = await tell();
  assert.deepEqual([again.semel, again.json], ["replayed", { place: "eu", n: 1 }]);
  assert.equal(await bySocket(server, "/keys/a"), '{"place":"eu","n":1}');
  const read = async (key) => (await server.send("GET", `/keys/${key}`)).json;
  await until(async () => (await read("b")).n === 1, "it is sent");
  assert.deepEqual(await read("b"), { place: "eu", n: 1 });

  const listed = async () => (await server.admin("GET", "keys?prefix=keys%2F")).json.keys.map(({ key }) => key);
  await until(async () => (await listed()).length === 2, "both are listed");
  assert.deepEqual((await listed()).sort(), ["keys/a", "keys/b"]);
  await server.line(/^a shard is in eu$/);
  assert.doesNotMatch(server.log, /a shard is in everywhere/);
  // A shard tells its keys to forget, and finds them in the same place.
  const forget = { id: "all", body: JSON.stringify({ before: early + 30 }) };
  assert.equal((await server.admin("POST", "forget", forget)).status, 202);
  await until(async () => (await server.admin("GET", "forget/1")).json.done === 2, "both keys were told");
  const late = await server.send("POST", "/keys/a/count", { id: randomUUID(), firstSent: early });
  assert.deepEqual([late.status, late.semel], [410, "forgotten"]);
});

test("in another jurisdiction a request has no record, and is executed again", { timeout: 120_000 }, async (t) => {
  const server = await serve((end) => t.after(end), "script", {}, more);
  const id = randomUUID();
  const change = async () => (await server.send("POST", "/keys/a/count", { id })).json;
  assert.deepEqual(await change(), { place: "everywhere", n: 1 });
  await server.restart({ vars: { ...server.vars, ...PLACED } });
  assert.deepEqual(await change(), { place: "eu", n: 1 });
  await server.restart({ vars: { ...server.vars, SEMEL_JURISDICTION: "" } });
  assert.deepEqual(await change(), { place: "everywhere", n: 1 }, "what is empty is not set");
});

test("with an unknown jurisdiction a change is unavailable, and the log says why", { timeout: 120_000 }, async (t) => {
  const server = await serve((end) => t.after(end), "script", { SEMEL_JURISDICTION: "atlantis" }, more);
  const id = randomUUID();
  const { status, semel, json } = await server.send("POST", "/keys/a/count", { id });
  assert.deepEqual([status, semel, json.executed, json.retry], [503, "unavailable", "unknown", "same-id"]);
  assert.match(await server.lineOf(id), /no such jurisdiction: atlantis/);
});
