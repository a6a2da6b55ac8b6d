// The class that a handler in JavaScript is: what `worker()` refuses, its methods, its schema, its rule for keys, and a scheduled handler beside it.
// On workerd.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { natively } from "./natively.mjs";
import { scriptWorker } from "./script.mjs";
import { serve } from "./server.mjs";

const LIMIT = { timeout: 60_000 };
const folder = await scriptWorker(after, join(ROOT, "tests/e2e/script/index.js"));
const server = await serve(after, "script", {}, { folder, objects: { SEMEL: "Probe", REGISTRY: "SemelRegistry" } });

test("worker() refuses a class that could not be served, with the reason", LIMIT, async () => {
  const reasons = (await server.send("GET", "/refused")).json;
  const expected = {
    nothing: /takes a class that extends SemelObject/,
    "no object": /takes a class that extends SemelObject/,
    "no handle": /Orders has no method handle\(ctx, request\)/,
    "handle as a field": /Orders has no method handle.*a field with a function is none/,
    async: /Orders\.handle must not be async: .*another commit.*belongs into the Worker's fetch/,
    generator: /Orders\.handle must not be async/,
    taken: /count is Semel's own: give it another name/,
    schema: /Orders\.schema is a list/,
    "keys off": /Orders\.schema turns PRAGMA foreign_keys off, which does nothing/,
    "keys of main off": /Orders\.schema turns PRAGMA foreign_keys off/,
    "key async": /Orders\.key must not be async: it says at once which key a request is of/,
    "key of numbers": /Orders\.key is a function, or a pattern/,
    "key of nothing": /Orders\.key is a function, or a pattern/,
    "key in braces": /Orders\.key is a function, or a pattern such as .*, written decoded/,
    "key escaped": /Orders\.key is a function, or a pattern such as .*, written decoded/,
    "key inside": /Orders\.key is a function, or a pattern/,
    "another one": /worker\(\) has Probe already/,
    "loaded again": /^served$/,
  };
  assert.deepEqual(Object.keys(reasons), Object.keys(expected));
  for (const [name, reason] of Object.entries(expected)) assert.match(reasons[name], reason, name);
});

test("the members of SemelObject in worker.d.ts are exactly the methods of its prototype", async () => {
  const { SemelObject } = await natively("host.js");
  const types = await readFile(join(ROOT, "sdk/npm/worker.d.ts"), "utf8");
  const [, members] = /^export abstract class SemelObject.*?\{\n([^]*?)^\}$/m.exec(types);
  const named = [...members.matchAll(/^ {2}(?:private )?(\w+)[(;]/gm)].map(([, name]) => name);
  assert.deepEqual(named.toSorted(), Object.getOwnPropertyNames(SemelObject.prototype).filter((name) => name !== "constructor").toSorted());
});

/** The folder of a Worker whose class has these members. */
const workerOf = (t, members) => workerFrom(t, `import { SemelObject, SemelRegistry, worker } from "semel/worker"; export { SemelRegistry }; export class Own extends SemelObject { ${members} } export default worker(Own);`);

/** The folder of a Worker with this source. */
async function workerFrom(t, text) {
  const source = await mkdtemp(join(tmpdir(), "semel-source-"));
  t.after(() => rm(source, { recursive: true, force: true }));
  await writeFile(join(source, "index.ts"), text);
  return scriptWorker((end) => t.after(end), join(source, "index.ts"));
}

const OWN = { objects: { SEMEL: "Own", REGISTRY: "SemelRegistry" } };

test("a schema that has grown is applied to existing tables; a failing entry rolls back its request and is logged", LIMIT, async (t) => {
  const entries = ["CREATE TABLE a (n)", "CREATE TABLE b (n); INSERT INTO b SELECT n FROM a", "CREATE TABLE a (n)"];
  const handle = 'handle({ sql }) { const tables = sql.exec("SELECT name FROM sqlite_master WHERE name IN (\'a\', \'b\')").toArray(); for (const { name } of tables) sql.exec(`INSERT INTO ${name} VALUES (1)`); return { status: 200, body: tables.map(({ name }) => [name, sql.exec(`SELECT count(*) AS n FROM ${name}`).one().n]) }; }';
  const folders = [await workerOf(t, handle)];
  for (const count of [1, 2, 3]) folders.push(await workerOf(t, `static schema = ${JSON.stringify(entries.slice(0, count))}; ${handle}`));
  const own = await serve((end) => t.after(end), "script", {}, { folder: folders[0], ...OWN });
  const made = async (id = randomUUID()) => own.send("POST", "/one", { id });
  assert.deepEqual((await made()).json, []);
  for (const [version, tables] of [[1, [["a", 1]]], [2, [["a", 2], ["b", 2]]]]) {
    await own.restart({ folder: folders[version] });
    assert.deepEqual((await made()).json, tables);
  }
  await own.restart({ folder: folders[3] });
  const id = randomUUID();
  const { status, json } = await made(id);
  assert.deepEqual([status, json.code, json.executed, json.retry], [500, "rolled-back", "no", "same-id"]);
  assert.match(await own.lineOf(id), /entry 2 of the schema: .*table a already exists/);
  await own.restart({ folder: folders[2] });
  assert.deepEqual((await made(id)).json, [["a", 3], ["b", 3]]);
});

test("with a key pattern, paths that do not fit it are 404; without a rule each path is its own key", LIMIT, async (t) => {
  const handle = "handle(ctx, { segments }) { return { status: 200, body: { key: ctx.key, segments } }; }";
  for (const [rule, keys] of [
    ['static key = "/shops/:shop/*";', { "/shops/1": "shops/1", "/shops/1/a/b": "shops/1", "/shops": null, "/stores/1": null, "/": null }],
    ['static key = "/shops/:shop";', { "/shops/1": "shops/1", "/shops/1/a": null }],
    ["", { "/shops/1/a": "shops/1/a" }],
  ]) {
    const own = await serve((end) => t.after(end), "script", {}, { folder: await workerOf(t, rule + handle), ...OWN });
    for (const [path, key] of Object.entries(keys)) {
      const { status, json } = await own.send("POST", path, { id: randomUUID() });
      const expected = key === null ? [404, undefined, undefined] : [200, key, path.slice(1).split("/")];
      assert.deepEqual([status, json.key, json.segments], expected, `${rule} ${path}`);
    }
    assert.deepEqual((await own.send("POST", "/", { id: randomUUID(), key: '"root"' })).json.segments, rule === "" ? [] : undefined);
    await own.kill();
  }
});

test("the scheduled handler of docs/handlers.md takes effect once for each scheduled time, however often it is called", LIMIT, async (t) => {
  const blocks = (await readFile(join(ROOT, "docs/handlers.md"), "utf8")).matchAll(/^```ts\n([^]*?)^```$/gm);
  const [[, handler], , [, scheduled]] = [...blocks];
  const text = handler.replace("export default worker(Counters);", scheduled.replace("export default", "const its ="));
  const called = 'new URL(request.url).pathname === "/call" ? Response.json(await env.SELF.scheduled({ scheduledTime: new Date(await request.json()), cron: "0 0 * * *" }))';
  const folder = await workerFrom(t, `${text} export default { ...its, fetch: async (request, env) => ${called} : its.fetch(request, env) };`);
  // Only a Worker with a queue has the binding to itself, SELF.
  const own = await serve((end) => t.after(end), "script", { TOKEN: "ann" }, { folder, objects: { SEMEL: "Counters", REGISTRY: "SemelRegistry" }, deadLetters: "127.0.0.1:1" });
  for (const [at, value] of [[5_000, 1], [5_000, 1], [6_000, 2]]) {
    assert.equal((await own.send("POST", "/call", { body: JSON.stringify(at) })).json.outcome, "ok");
    assert.equal((await own.admin("GET", "keys/counters%2Fruns")).json.records, value);
  }
});
