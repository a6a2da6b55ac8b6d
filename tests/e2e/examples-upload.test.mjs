// The examples without code of Semel's: wrangler takes their configuration, and uploads what was built, byte for byte.

import assert from "node:assert/strict";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { configOf, wrangler } from "../../scripts/deploy/wrangler.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { startWorkerd } from "../../scripts/setup/workerd.mjs";

const LIMIT = { timeout: 120_000 };
const LINES_MAX = 60;
const scratch = await mkdtemp(join(tmpdir(), "semel-upload-"));
after(() => rm(scratch, { recursive: true, force: true }));

for (const name of ["upstream", "binding"]) {
  const file = join(ROOT, `examples/${name}/wrangler.toml`);

  test(`examples/${name}: what would be uploaded is what was built, and runs as its configuration binds it`, LIMIT, async () => {
    assert.ok((await readFile(file, "utf8")).split("\n").length < LINES_MAX);
    const folder = join(scratch, name);
    await wrangler(["deploy", "--dry-run", "--outdir", folder, "--config", file]);
    await rm(join(folder, "README.md"));
    const built = workerFolder("upstream");
    assert.deepEqual((await readdir(folder)).sort(), (await readdir(built)).sort());
    for (const each of await readdir(built)) assert.ok((await readFile(join(folder, each))).equals(await readFile(join(built, each))), each);

    const { durable_objects, migrations, services, vars } = await configOf(file);
    const objects = Object.fromEntries(durable_objects.bindings.map(({ name: binding, class_name }) => [binding, class_name]));
    assert.deepEqual(migrations.flatMap(({ new_sqlite_classes }) => new_sqlite_classes).sort(), Object.values(objects).sort());
    const others = Object.fromEntries((services ?? []).map(({ binding, service }) => [binding, join(ROOT, `examples/${name}/${service}.js`)]));
    const server = await startWorkerd({ folder, state: join(scratch, `${name}-state`), objects, vars, services: others });
    after(() => server.kill());
    assert.equal((await fetch(`${server.url}/semel/v1/health`)).status, 200);
    const refused = await fetch(`${server.url}/orders`, { method: "POST", headers: { "idempotency-key": "one" }, body: "{}" });
    assert.deepEqual([refused.status, refused.headers.get("semel-status")], [401, "unauthorized"], "nobody is served before it has keys");
  });
}
