// Tests the examples of handlers with the commands of examples/README.md: the package is packed, and wrangler starts the examples.
//
// Invariants:
// - The examples are installed and started as the page says, but nothing is downloaded: wrangler is the checkout's, and its ports are free ones.
// - Of the checkout, the examples can reach only what was packed, and nothing outlives the test file.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmod, copyFile, cp, mkdir, readFile, readdir, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { configOf, nodeForWrangler } from "../../scripts/deploy/wrangler.mjs";
import { DEPLOY } from "../../scripts/setup/packages.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { run } from "../../scripts/setup/step.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { startWorkerd } from "../../scripts/setup/workerd.mjs";
import { until } from "../e2e/lossy.mjs";
import { pack } from "./packed.mjs";

/** A test that takes longer hangs. */
const LIMIT = { timeout: 180_000 };
/** How long wrangler may take to bundle and start: usually some seconds, and many more on a busy machine. */
const STARTED_MS_MAX = 120_000;
const LINES_MAX = 60;
const UPSTREAM = "http://127.0.0.1:3000";

const { dependencies: { wrangler: WRANGLER } } = JSON.parse(await readFile(join(DEPLOY, "package.json"), "utf8"));
const howTo = await readFile(join(ROOT, "examples/README.md"), "utf8");
const checkout = dirname(await pack(after));
const bin = join(checkout, "bin");

before(async () => {
  await mkdir(bin);
  const wrangler = `#!/bin/sh\nexec ${JSON.stringify(nodeForWrangler())} ${JSON.stringify(join(DEPLOY, "node_modules/wrangler/bin/wrangler.js"))} "$@" $SEMEL_TEST_FLAGS\n`;
  await writeFile(join(bin, "wrangler"), wrangler);
  await chmod(join(bin, "wrangler"), 0o755);
});

/** The environment in which examples are installed, started and uploaded. `flags`: more flags for wrangler. */
function environment(flags = "") {
  const settings = { offline: true, audit: false, fund: false, update_notifier: false, cache: join(checkout, "cache") };
  const npm = Object.entries(settings).map(([name, value]) => [`npm_config_${name}`, String(value)]);
  const quiet = { CI: "true", CLOUDFLARE_CF_FETCH_ENABLED: "false", WRANGLER_HIDE_BANNER: "true", WRANGLER_LOG_PATH: join(checkout, "logs"), WRANGLER_SEND_ERROR_REPORTS: "false", WRANGLER_SEND_METRICS: "false" };
  return { ...process.env, ...Object.fromEntries(npm), ...quiet, PATH: `${bin}:${process.env.PATH}`, SEMEL_TEST_FLAGS: flags };
}

/** The commands of examples/README.md for an example: the first line installs, the second starts it. */
function commandsOf(name) {
  const [, script] = new RegExp(`<!-- ${name} -->\n\`\`\`sh\n([\\s\\S]*?)\`\`\``).exec(howTo) ?? [];
  assert.ok(script, `examples/README.md has the commands of ${name}`);
  return script.trimEnd().split("\n");
}

/** Copies an example beside the package, and installs the package as the page says. */
async function install(name, beside = "examples") {
  const folder = join(checkout, beside, name);
  await cp(join(ROOT, "examples", name), folder, { recursive: true, filter: (path) => !/node_modules|\.wrangler|worker-configuration/.test(path) });
  const { devDependencies, ...manifest } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  assert.equal(devDependencies.wrangler, WRANGLER, "the example and the tests have the same wrangler");
  await writeFile(join(folder, "package.json"), JSON.stringify(manifest));
  const [first] = commandsOf(name);
  await run("bash", ["-euc", first.replace(`examples/${name}`, `${beside}/${name}`)], { cwd: checkout, env: environment() });
  return folder;
}

/** Starts an example as the page says, with its command changed by `change`. Resolves to `{ url, send }`. */
async function start(t, name, change = (command) => command) {
  const [, second] = commandsOf(name);
  const child = spawn("bash", ["-euc", `exec ${change(second)}`], { cwd: checkout, env: environment("--ip 127.0.0.1 --port 0 --inspector-port 0 --show-interactive-dev-session=false"), detached: true });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
  const ended = new Promise((resolve) => child.on("close", resolve));
  t.after(() => {
    // Kills only the child's own process group: wrangler and workerd.
    if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, "SIGKILL");
    return ended;
  });
  const address = () => /Ready on (http\S+)\s/.exec(stripVTControlCharacters(output))?.[1];
  await Promise.race([until(address, `${name} is ready`, STARTED_MS_MAX).catch(({ message }) => assert.fail(`${message}\n${output}`)), ended]);
  assert.ok(address(), output);
  const url = address();
  const send = async (method, path, { id, body, text = body && JSON.stringify(body) } = {}) => {
    const answer = await fetch(url + path, { method, headers: { "content-type": "application/json", ...(id && { "idempotency-key": `"${id}"` }) }, body: text });
    return { status: answer.status, semel: answer.headers.get("semel-status"), text: await answer.text() };
  };
  return { url, send };
}

/** Sends a change twice at the same time. One attempt is executed, and both get its answer. */
async function twice({ send }, path, body, expected, id = randomUUID()) {
  const answers = await Promise.all([send("POST", path, { id, body }), send("POST", path, { id, body })]);
  for (const { status, text } of answers) assert.deepEqual([status, JSON.parse(text)], expected, JSON.stringify(answers));
  assert.deepEqual(answers.map(({ semel }) => semel).sort(), ["executed", "replayed"]);
}

/** An API without idempotency keys, and the orders that it was asked to make. */
async function api(t) {
  const made = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    const found = request.method === "GET" ? made.find(({ ref }) => request.url === `/orders/by-ref/${ref}`) : JSON.parse(text);
    if (request.method === "POST") made.push(found);
    response.writeHead(found ? (request.method === "POST" ? 201 : 200) : 404, { "content-type": "application/json" }).end(JSON.stringify(found ?? {}));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return { made, url: `http://127.0.0.1:${server.address().port}` };
}

async function makesOrders(server) {
  await twice(server, "/shops/north/deliveries", { item: "apple", quantity: 5 }, [201, { quantity: 5 }]);
  await twice(server, "/shops/north/orders", { item: "apple", quantity: 2 }, [201, { order: 1, left: 3 }]);
  return server;
}

/** What the test asks of each example once it is started. */
const examples = {
  async "orders-typescript"(t) {
    return makesOrders(await start(t, "orders-typescript"));
  },
  async transfers(t) {
    const server = await start(t, "transfers");
    await twice(server, "/accounts/ann/deposit", { amount: 10 }, [200, { balance: 10 }]);
    await server.send("POST", "/accounts/ann/transfer", { id: randomUUID(), body: { to: "bob", amount: 4 } });
    await until(async () => (await server.send("GET", "/accounts/bob")).text.includes('"balance":4'), "it has arrived", STARTED_MS_MAX);
    return server;
  },
  async upstream(t) {
    const other = await api(t);
    const server = await start(t, "upstream", (command) => {
      assert.ok(command.includes(UPSTREAM), command);
      return command.replace(UPSTREAM, other.url);
    });
    // This client sends no id. The id is made from the order's own reference.
    for (const ref of ["one", "two"]) {
      const answers = await Promise.all([1, 2].map(() => server.send("POST", "/orders", { body: { ref } })));
      for (const { status, text } of answers) assert.deepEqual([status, JSON.parse(text)], [201, { ref }], JSON.stringify(answers));
    }
    assert.deepEqual(other.made, [{ ref: "one" }, { ref: "two" }]);
    return server;
  },
  async binding(t) {
    const server = await start(t, "binding");
    await twice(server, "/orders", { item: "tea" }, [201, { number: 1, item: "tea", by: '""' }]);
    assert.equal(JSON.parse((await server.send("GET", "/orders")).text).length, 1);
    // The client is told of its mistake, and nothing is left in doubt that an administrator would have to resolve.
    for (const wrong of ["{", "null", ""]) {
      const { status, text } = await server.send("POST", "/orders", { id: randomUUID(), text: wrong });
      assert.deepEqual([status, JSON.parse(text)], [400, { error: "no-item" }], wrong);
    }
    assert.equal((await server.send("DELETE", "/orders", { id: randomUUID(), text: '{"item":"tea"}' })).status, 404, "no order is made by a deletion");
    return server;
  },
};

for (const [name, ask] of Object.entries(examples)) {
  test(`examples/${name}: started with the commands of examples/README.md, it makes a change that is sent twice once`, LIMIT, async (t) => {
    const folder = await install(name);
    const { url } = await ask(t);
    const page = await fetch(`${url}/inspector`);
    assert.deepEqual([page.status, page.headers.get("content-security-policy")], [200, "frame-ancestors 'none'"]);
    const html = await page.text();
    for (const [, path] of html.matchAll(/(?:src|href)="(\/[^"]+)"/g)) assert.equal((await fetch(url + path)).status, 200, path);
    assert.ok((await readFile(join(folder, "wrangler.toml"), "utf8")).split("\n").length < LINES_MAX);
  });
}

test("examples/orders-typescript: its own tests pass as npm test runs them, even with secrets in .dev.vars", LIMIT, async () => {
  const folder = await install("orders-typescript", "tested");
  await symlink(join(DEPLOY, "node_modules/wrangler"), join(folder, "node_modules/wrangler"));
  const key = { kty: "oct", alg: "HS256", kid: "a", k: "A".repeat(43) };
  await writeFile(join(folder, ".dev.vars"), `SEMEL_JWT_KEYS='${JSON.stringify({ keys: [key] })}'\nSEMEL_JWT_AUDIENCE='semel'\n`);
  const { scripts } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  assert.equal(scripts.test, "node --test");
  // Without the variable that marks a child of this test runner. With it, those tests would report to this runner and print nothing.
  const printed = await run(nodeForWrangler(), ["--test", "--test-reporter", "tap"], { cwd: folder, env: { ...environment(), NODE_TEST_CONTEXT: undefined } });
  assert.match(printed, /^# pass 3$/m, printed);
});

test("examples/orders-rust: started with the commands of examples/README.md, it makes a change that is sent twice once", LIMIT, async (t) => {
  const folder = join(checkout, "examples/orders-rust");
  await cp(join(ROOT, "examples/orders-rust"), folder, { recursive: true, filter: (path) => !/\/(build|target)$/.test(path) });
  const [build] = commandsOf("orders-rust");
  assert.equal(build, "npm run worker -- examples/orders-rust");
  await cp(workerFolder("orders-rust"), join(folder, "build"), { recursive: true });
  const command = (line) => {
    assert.ok(line.startsWith("npm run wrangler -- "), line);
    return line.replace("npm run wrangler --", "wrangler");
  };
  await makesOrders(await start(t, "orders-rust", command));
});

for (const name of ["upstream", "binding"]) {
  test(`examples/${name}: the upload has the built module, runs on its bindings, and answers 401 before there are keys`, LIMIT, async (t) => {
    const folder = join(checkout, "uploads", name);
    await install(name, "uploads");
    await run("bash", ["-euc", "wrangler deploy --dry-run --outdir dist"], { cwd: folder, env: environment() });
    const uploaded = join(folder, "uploaded");
    await mkdir(uploaded);
    for (const file of await readdir(join(folder, "dist"))) if (/\.(js|wasm)$/.test(file)) await copyFile(join(folder, "dist", file), join(uploaded, file));
    const files = await readdir(uploaded);
    const [wasm] = files.filter((file) => file.endsWith("semel_bg.wasm"));
    assert.deepEqual(files.sort(), ["index.js", wasm].sort());
    assert.ok((await readFile(join(uploaded, wasm))).equals(await readFile(join(workerFolder("upstream"), "semel_bg.wasm"))));

    const { durable_objects, migrations, services, vars } = await configOf(join(folder, "wrangler.toml"));
    const objects = Object.fromEntries(durable_objects.bindings.map(({ name: binding, class_name }) => [binding, class_name]));
    assert.deepEqual(migrations.flatMap(({ new_sqlite_classes }) => new_sqlite_classes).sort(), Object.values(objects).sort());
    const others = Object.fromEntries((services ?? []).map(({ binding, service }) => [binding, join(folder, `${service}.js`)]));
    const server = await startWorkerd({ folder: uploaded, state: join(folder, "state"), objects, vars, services: others });
    t.after(() => server.kill());
    assert.equal((await fetch(`${server.url}/semel/v1/health`)).status, 200);
    const refused = await fetch(`${server.url}/orders`, { method: "POST", headers: { "idempotency-key": "one" }, body: "{}" });
    assert.deepEqual([refused.status, refused.headers.get("semel-status")], [401, "unauthorized"]);
  });
}
