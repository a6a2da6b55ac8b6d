// How to leave Semel, as docs/operations.md shows it: a class without Semel, under the same names, reads the tables that the handler has written.

import assert from "node:assert/strict";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { startWorkerd } from "../../scripts/setup/workerd.mjs";
import { stateFolder } from "./folders.mjs";
import { scriptWorker } from "./script.mjs";

const OBJECTS = { SEMEL: "Orders", REGISTRY: "SemelRegistry" };

test("a class without Semel reads the tables that the handler has written, at the key of the same name", { timeout: 60_000 }, async () => {
  const state = await stateFolder("semel-leave-");
  after(() => rm(state, { recursive: true, force: true }));
  const [, code] = /<!-- leave -->\n```js\n([\s\S]*?)```/.exec(await readFile(join(ROOT, "docs/operations.md"), "utf8")) ?? [];
  assert.ok(code, "docs/operations.md shows it");
  const plain = join(state, "plain");
  await mkdir(plain);
  await writeFile(join(plain, "index.js"), code);

  const of = async (folder, vars, ask) => {
    const server = await startWorkerd({ folder, state: join(state, "objects"), objects: OBJECTS, vars });
    return ask(server.url).finally(server.kill);
  };
  const delivered = await of(await scriptWorker(after, join(ROOT, "examples/orders-typescript/src/index.ts")), { SEMEL_OPEN: "true" }, async (url) => {
    const body = JSON.stringify({ item: "apple", quantity: 5 });
    return (await fetch(`${url}/shops/north/deliveries`, { method: "POST", headers: { "idempotency-key": "delivery" }, body })).status;
  });
  assert.equal(delivered, 201);
  assert.deepEqual(await of(plain, {}, async (url) => (await fetch(url)).json()), [{ item: "apple", quantity: 5 }]);
});
