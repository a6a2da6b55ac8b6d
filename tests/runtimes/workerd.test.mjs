// Tests the packed SDK as a client inside a Worker, on workerd.

import assert from "node:assert/strict";
import { copyFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, test } from "node:test";
import { build } from "esbuild";
import { run } from "../../scripts/setup/step.mjs";
import { EXPORTS, installApp } from "./packed.mjs";
import { expected, serveLossily } from "./server.mjs";

const server = await serveLossily(after);
const { folder } = await installApp(after);

test("the packed SDK in a Worker makes a change, and gets the answer that was lost", { timeout: 60_000 }, async () => {
  // This bundles as wrangler does: wasm stays a separate module, which the runtime compiles.
  await build({
    absWorkingDir: folder,
    entryPoints: ["worker.js"],
    outfile: "worker/index.js",
    bundle: true,
    format: "esm",
    conditions: ["workerd", "worker", "browser"],
    external: ["*.wasm"],
    logLevel: "silent",
  });
  for (const name of ["semel.wasm", "session.wasm"]) await copyFile(join(folder, "node_modules/semel", name), join(folder, "worker", name));
  await writeFile(join(folder, "worker/config.capnp"), config());
  const { default: workerd } = createRequire(import.meta.url)("workerd");
  const printed = await run(workerd, ["test", "--verbose", join(folder, "worker/config.capnp")], { timeoutMs: 30_000 });
  const results = [...printed.matchAll(/told (\{.*\})/g)].map(([, json]) => JSON.parse(json));
  for (const account of ["workerd", "workerd-again"]) {
    const told = results.find(({ body }) => body.id === account);
    assert.deepEqual(told, { exports: EXPORTS, ...expected(account) });
    assert.deepEqual(await server.account(account), { id: account, balance: 5, entries: 1 });
  }
});

/** The configuration of a Worker whose `fetch` reaches the ledger and nothing else. */
function config() {
  const text = JSON.stringify;
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main),
    (name = "ledger", external = (address = ${text(new URL(server.url).host)}, http = ())),
  ],
);
const main :Workerd.Worker = (
  modules = [
    (name = "index.js", esModule = embed "index.js"),
    (name = "semel.wasm", wasm = embed "semel.wasm"),
    (name = "session.wasm", wasm = embed "session.wasm"),
  ],
  compatibilityDate = "2026-05-01",
  globalOutbound = "ledger",
  bindings = [ (name = "URL_OF_LEDGER", text = "https://ledger.test") ],
);
`;
}
