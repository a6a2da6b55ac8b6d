// `npm run deploy`, as far as it can be tested without Cloudflare: what it would upload, with which bindings, and what it refuses.

import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { build } from "esbuild";
import { unreadable } from "../../scripts/deploy/reading.mjs";
import { SETTINGS, judge } from "../../scripts/deploy/settings.mjs";
import { configOf, nodeForWrangler, placesAt, secretsAt, wrangler } from "../../scripts/deploy/wrangler.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { run } from "../../scripts/setup/step.mjs";
import { workerFolder } from "../../scripts/setup/worker.mjs";
import { COMPATIBILITY_DATE, COMPATIBILITY_FLAGS, startWorkerd } from "../../scripts/setup/workerd.mjs";

const LIMIT = { timeout: 120_000 };
const CONFIG = join(ROOT, "wrangler.toml");
const DEMO = join(ROOT, "scripts/deploy/demo.toml");
/** Both, as wrangler reads them. */
const configs = { [CONFIG]: await configOf(CONFIG), [DEMO]: await configOf(DEMO) };
const KEYS = JSON.stringify({ keys: [{ kty: "oct", kid: "one", k: "YS1rZXktb2YtYS10ZXN0LW9mLXRoaXJ0eS10d28tYnl0ZXM" }] });
const TOKEN = "the-token-of-a-test";

const scratch = await mkdtemp(join(tmpdir(), "semel-deploy-"));
after(() => rm(scratch, { recursive: true, force: true }));

const dryRun = (...args) => run(process.execPath, [join(ROOT, "scripts/deploy.mjs"), "--dry-run", ...args]);

async function secretsFile(name, secrets) {
  const path = join(scratch, name);
  await writeFile(path, JSON.stringify(secrets));
  return path;
}

/** Makes the folder that wrangler would upload, without the README that wrangler adds, and checks it against the build. */
async function uploaded(name, ...args) {
  const folder = join(scratch, name);
  const printed = await dryRun("--outdir", folder, ...args);
  await rm(join(folder, "README.md"));
  const built = workerFolder("ledger");
  assert.deepEqual((await readdir(folder)).sort(), (await readdir(built)).sort());
  for (const file of await readdir(built)) assert.ok((await readFile(join(folder, file))).equals(await readFile(join(built, file))), file);
  return { folder, printed };
}

/** Runs an upload on workerd, with the bindings of its configuration. */
async function serve(folder, file, state) {
  const { assets, durable_objects, vars } = configs[file];
  const objects = Object.fromEntries(durable_objects.bindings.map(({ name, class_name }) => [name, class_name]));
  const directory = join(file, "..", assets.directory);
  const server = await startWorkerd({ folder, state: join(scratch, state), objects, vars, assets: directory });
  after(() => server.kill());
  return server.url;
}

const deposit = (url, path) => fetch(url + path, { method: "POST", headers: { "idempotency-key": "one" }, body: '{"amount":5}' });

test("the upload is what was built, byte for byte, and without keys the uploaded Worker refuses changes", LIMIT, async () => {
  const { folder, printed } = await uploaded("default");
  assert.match(printed, /Missing, unless it was deployed before: SEMEL_JWT_KEYS or SEMEL_JWKS_URL/);
  assert.match(printed, /There is no SEMEL_ADMIN_TOKEN/);
  assert.match(printed, /--dry-run: exiting now/);
  const url = await serve(folder, CONFIG, "default-state");
  assert.equal((await fetch(`${url}/semel/v1/health`)).status, 200);
  assert.equal((await deposit(url, "/accounts/a/deposit")).status, 401);
  assert.equal((await deposit(url, "/naive/accounts/a/deposit")).status, 401);
  const page = await fetch(url);
  assert.deepEqual([page.status, new URL(page.url).pathname], [200, "/docs/"]);
});

test("the demonstration deploys from its own configuration, and executes a deposit once", LIMIT, async () => {
  const secrets = await secretsFile("good.json", { SEMEL_ADMIN_TOKEN: TOKEN });
  const { folder, printed } = await uploaded("demo", "--config", DEMO, "--open", "--secrets-file", secrets);
  assert.match(printed, /nothing is wrong with them/);
  assert.ok(!printed.includes(TOKEN), printed);
  const url = await serve(folder, DEMO, "demo-state");
  const statuses = [];
  for (let attempt = 0; attempt < 2; attempt += 1) statuses.push((await deposit(url, "/accounts/a/deposit")).headers.get("semel-status"));
  assert.deepEqual(statuses, ["executed", "replayed"]);
  assert.equal((await deposit(url, "/naive/accounts/a/deposit")).status, 200);
  const page = await fetch(url);
  assert.deepEqual([page.status, new URL(page.url).pathname], [200, "/"]);
});

test("an open deployment without --open is refused before anything is built or written", LIMIT, async () => {
  const outdir = join(scratch, "refused");
  await assert.rejects(dryRun("--config", DEMO, "--outdir", outdir), (error) => {
    assert.match(error.message, /SEMEL_OPEN is true/);
    assert.doesNotMatch(error.message, /worker ledger/);
    return true;
  });
  assert.ok(!existsSync(outdir));
});

test("an unknown option, and a configuration of a worker that can't be built, are refused with their reasons", LIMIT, async () => {
  await assert.rejects(dryRun("--opne"), /Unknown option '--opne'[\s\S]*--dry-run/);
  const other = join(scratch, "other.toml");
  await writeFile(other, 'name = "other"\nmain = "elsewhere/index.js"\n');
  await assert.rejects(dryRun("--config", other), /elsewhere\/index.js is not a worker that can be built here/);
});

test("a secrets file is checked before the deployment, and a refusal never shows a secret", LIMIT, async () => {
  const short = await secretsFile("short.json", { SEMEL_JWT_KEYS: KEYS, SEMEL_ADMIN_TOKEN: "swordfish" });
  const broken = join(scratch, "broken.json");
  await writeFile(broken, "SEMEL_ADMIN_TOKEN=swordfish");
  // wrangler would upload this as a secret with the name "0".
  const list = await secretsFile("list.json", ["swordfish"]);
  for (const [file, why] of [[short, /SEMEL_ADMIN_TOKEN is too short/], [broken, /is no JSON object/], [list, /is no JSON object/]]) {
    await assert.rejects(dryRun("--secrets-file", file), ({ message }) => {
      assert.match(message, why);
      assert.doesNotMatch(message, /swordfish|YS1rZXkt/);
      return true;
    });
  }
});

test("settings that the Worker could not read are refused before anything is uploaded, and no secret is shown", LIMIT, async () => {
  const folder = workerFolder("ledger");
  const vars = { SEMEL_JWT_AUDIENCE: "semel" };
  const given = { SEMEL_JWT_KEYS: KEYS, SEMEL_ADMIN_TOKEN: TOKEN };
  const read = (deployment) => unreadable(folder, { vars, given, ...deployment });
  assert.equal(await read({}), undefined);
  // TOML gives these as a number and as an array of tables.
  assert.equal(await read({ vars: { ...vars, SEMEL_RATE_BURST: 5, SEMEL_KEY_RULES: [{ keys: "a/*", recordsMax: 1 }] } }), undefined);
  assert.match(await read({ vars: { ...vars, SEMEL_RATE_BURST: 0 } }), /^SEMEL_RATE_BURST is "0"; it must be/);
  assert.match(await read({ vars: { ...vars, SEMEL_ORIGINS: "app.example" } }), /^SEMEL_ORIGINS has "app.example"/);
  assert.equal(await read({ given: { ...given, SEMEL_RATE_BURST: "swordfish" } }), "SEMEL_RATE_BURST can't be read");
  const short = JSON.stringify({ keys: [{ kty: "oct", kid: "one", k: "swordfis" }] });
  assert.match(await read({ given: { ...given, SEMEL_JWT_KEYS: short } }), /fewer than 32 bytes$/);
  assert.equal(await read({ vars: {}, there: ["SEMEL_JWT_AUDIENCE"] }), undefined, "a secret that is there has a value that nobody sees");
  assert.equal(await unreadable(workerFolder("upstream"), { vars: { SEMEL_RATE_BURST: 0 }, given: {} }), undefined, "only the runtime can ask it");
  const file = await secretsFile("spaced.json", { ...given, SEMEL_ADMIN_TOKEN: "swordfish with spaces" });
  await assert.rejects(dryRun("--secrets-file", file), ({ message }) => {
    assert.match(message, /would serve nobody with them:\n  SEMEL_ADMIN_TOKEN has characters that no header can hold/);
    assert.doesNotMatch(message, /swordfish|exiting now/);
    return true;
  });
});

test("every class that the worker exports has a binding and a migration, NaiveObject in the demonstration alone", async () => {
  const { metafile } = await build({ entryPoints: [join(workerFolder("ledger"), "index.js")], bundle: true, format: "esm", write: false, metafile: true, external: ["cloudflare:workers", "*.wasm"] });
  const [{ exports }] = Object.values(metafile.outputs);
  const exported = exports.filter((name) => name !== "default").sort();
  assert.ok(exported.includes("SemelObject") && exported.includes("NaiveObject"), exported.join());
  for (const [file, classes] of [[CONFIG, exported.filter((name) => name !== "NaiveObject")], [DEMO, exported]]) {
    const config = configs[file];
    assert.deepEqual(config.durable_objects.bindings.map(({ class_name }) => class_name).sort(), classes, file);
    assert.deepEqual(config.migrations.flatMap((step) => step.new_sqlite_classes).sort(), classes, file);
    assert.deepEqual([config.compatibility_date, config.compatibility_flags], [COMPATIBILITY_DATE, COMPATIBILITY_FLAGS]);
    assert.deepEqual([config.no_bundle, config.preview_urls, config.assets.run_worker_first], [true, false, true]);
    assert.deepEqual([config.observability.logs.enabled, config.observability.logs.invocation_logs], [true, false]);
  }
});

test("the examples and docs/handlers.md have the compatibility date and flags that are tested", async () => {
  const folders = (await readdir(join(ROOT, "examples"))).map((name) => join(ROOT, "examples", name, "wrangler.toml")).filter((file) => existsSync(file));
  assert.ok(folders.length > 4, folders.join());
  const runtime = `\ncompatibility_date = ${JSON.stringify(COMPATIBILITY_DATE)}\ncompatibility_flags = ${JSON.stringify(COMPATIBILITY_FLAGS)}\n`;
  for (const file of [...folders, join(ROOT, "docs/handlers.md")]) assert.ok((await readFile(file, "utf8")).includes(runtime), file);
});

test("the check of settings finds those that would serve nobody or everybody or are ambiguous, and passes the others", () => {
  const vars = { SEMEL_JWT_AUDIENCE: "semel" };
  const given = { SEMEL_JWT_KEYS: KEYS, SEMEL_ADMIN_TOKEN: TOKEN };
  const nothing = { wrong: [], missing: [], noted: [] };
  assert.deepEqual(judge({ vars, given }), nothing);
  assert.deepEqual(judge({ vars, there: Object.keys(given) }), nothing);
  assert.deepEqual(judge({ vars: { SEMEL_OPEN: "true" }, given: { SEMEL_ADMIN_TOKEN: TOKEN }, isOpenMeant: true }), nothing);
  assert.deepEqual(judge({ vars: { ...vars, SEMEL_JWKS_URL: "https://example.com/jwks" }, there: ["SEMEL_ADMIN_TOKEN"] }), nothing);

  const first = (deployment, list) => judge({ vars, given, ...deployment })[list][0]?.split(/[ :]/)[0];
  assert.equal(first({ given: {} }, "missing"), "SEMEL_JWT_KEYS");
  assert.equal(first({ given: { SEMEL_JWT_KEYS: KEYS } }, "noted"), "There");
  assert.equal(first({ vars: {} }, "wrong"), "SEMEL_JWT_AUDIENCE");
  // To the Worker, an empty setting is not set.
  assert.equal(first({ vars: { SEMEL_JWT_AUDIENCE: "" } }, "wrong"), "SEMEL_JWT_AUDIENCE");
  assert.equal(first({ vars: { ...vars, SEMEL_JWKS_URL: "" }, given: {} }, "missing"), "SEMEL_JWT_KEYS");
  // A value that is given replaces the one that is deployed.
  assert.equal(first({ given: { SEMEL_JWKS_URL: "" }, there: ["SEMEL_JWKS_URL"] }, "missing"), "SEMEL_JWT_KEYS");
  assert.deepEqual(judge({ vars: { SEMEL_OPEN: "true", SEMEL_JWKS_URL: "" }, given: { SEMEL_ADMIN_TOKEN: TOKEN }, isOpenMeant: true }), nothing);
  assert.match(judge({ vars: { ...vars, SEMEL_JWT_AUDIANCE: "x" }, given }).wrong.join(), /^SEMEL_JWT_AUDIANCE is no setting/);
  assert.match(judge({ vars: { ...vars, SEMEL_ADMIN_TOKEN: TOKEN } }).wrong.join(), /SEMEL_ADMIN_TOKEN is among the vars/);
  assert.match(judge({ vars, given: { ...given, SEMEL_OPEN: "true" } }).wrong.join(), /^SEMEL_OPEN is true/);
  // TOML has booleans and numbers.
  assert.match(judge({ vars: { ...vars, SEMEL_OPEN: true }, given }).wrong.join(), /^SEMEL_OPEN is true/);
  assert.deepEqual(judge({ vars: { ...vars, SEMEL_OPEN: false }, given }), nothing);
  for (const unreadable of ["yes", "TRUE", "", 1]) assert.match(judge({ vars: { ...vars, SEMEL_OPEN: unreadable }, given }).wrong.join(), /^SEMEL_OPEN is neither true nor false/, String(unreadable));
  const keys = (text, where = "given") => judge(where === "given" ? { vars, given: { ...given, SEMEL_JWT_KEYS: text } } : { vars: { ...vars, SEMEL_JWT_KEYS: text } }).wrong.join();
  const set = (key) => JSON.stringify({ keys: [key] });
  for (const text of ["", "{", "null", "[]", '{"keys":[]}', '{"keys":{}}']) assert.match(keys(text), /is no JWK set/, text);
  assert.match(keys(set({ kty: "oct", k: "x" })), /a key without a kid/);
  assert.match(keys(set({ kty: "EC", kid: "a", x: "x", y: "y", d: "d" })), /has a private key/);
  assert.match(keys(KEYS, "vars"), /has an oct key/);
  const publics = [["ed25519"], ["rsa", { modulusLength: 2048 }], ["ec", { namedCurve: "P-256" }]].map((kind) => ({ ...generateKeyPairSync(...kind).publicKey.export({ format: "jwk" }), kid: "a" }));
  for (const key of publics) assert.equal(keys(set(key), "vars"), "", key.kty);
  const [ed, rsa, ec] = publics;
  for (const key of [{ ...ed, x: "x" }, { ...rsa, n: undefined }, { ...ec, y: ec.x }, {}]) assert.match(keys(set({ ...key, kid: "a" }), "vars"), /an invalid public key/, JSON.stringify(key));
  // The Worker takes the key set as a table of TOML too.
  assert.equal(keys({ keys: [ed] }, "vars"), "");
  assert.match(keys(JSON.parse(KEYS), "vars"), /has an oct key/);
  assert.equal(new Set(SETTINGS).size, SETTINGS.length);
});

test("a deployment with another jurisdiction than the existing keys is refused, unless that is meant", () => {
  const deployment = { given: { SEMEL_JWT_KEYS: KEYS, SEMEL_ADMIN_TOKEN: TOKEN } };
  const judged = (place, places, more) => {
    const vars = { SEMEL_JWT_AUDIENCE: "semel", ...(place !== undefined && { SEMEL_JURISDICTION: place }) };
    const { wrong, missing, noted } = judge({ ...deployment, vars, places, ...more });
    assert.deepEqual([missing, noted], [[], []]);
    return wrong.map((text) => text.split(" ")[0]);
  };
  const refused = ["SEMEL_JURISDICTION"];
  for (const [place, places] of [["eu", ["eu"]], ["eu", []], [undefined, [""]], ["", [""]], [undefined, []]]) assert.deepEqual(judged(place, places), [], `${place} at ${places}`);
  for (const [place, places] of [["eu", [""]], [undefined, ["eu"]], ["", ["eu"]], ["us", ["eu"]], ["eu", ["eu", ""]]]) {
    assert.deepEqual(judged(place, places), refused, `${place} at ${places}`);
    assert.deepEqual(judged(place, places, { isEmptyMeant: true }), []);
  }
  // A deployed secret stays unless this deployment gives another. Its value can't be read, so it can't be compared.
  const there = ["SEMEL_JURISDICTION"];
  assert.deepEqual(judged(undefined, [undefined], { there }), []);
  const given = { ...deployment.given, SEMEL_JURISDICTION: "eu" };
  assert.deepEqual(judged(undefined, [undefined], { there, given }), refused);
  assert.deepEqual(judged("eu", [undefined]), refused);
});

/** A stand-in for Cloudflare's API, asked by the wrangler that deploys. `answer(url)` returns status and body. */
async function cloudflare(t, answer) {
  const asked = [];
  const api = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    const [status, body] = answer(request.url);
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ success: status === 200, messages: [], ...body }));
  });
  await new Promise((resolve) => api.listen(0, "127.0.0.1", resolve));
  t.after(() => api.close());
  const env = { CI: "true", CLOUDFLARE_API_BASE_URL: `http://127.0.0.1:${api.address().port}`, CLOUDFLARE_API_TOKEN: "a-token", CLOUDFLARE_ACCOUNT_ID: "an-account" };
  return { env, asked, ask: (args) => wrangler(args, { env }) };
}

test("a Worker that was never deployed has no secrets and no keys, and an API that refuses is an error with advice", LIMIT, async (t) => {
  let answer;
  const { ask } = await cloudflare(t, () => answer);
  const asked = (of, ...answered) => ((answer = answered), of(CONFIG, ask));
  assert.deepEqual(await asked(secretsAt, 200, { errors: [], result: [{ name: "SEMEL_ADMIN_TOKEN", type: "secret_text" }] }), ["SEMEL_ADMIN_TOKEN"]);
  for (const of of [secretsAt, placesAt]) {
    assert.deepEqual(await asked(of, 404, { errors: [{ code: 10007, message: "This Worker does not exist on your account." }], result: null }), []);
    await assert.rejects(asked(of, 403, { errors: [{ code: 10000, message: "Authentication error" }], result: null }), ({ message, advice }) => /Authentication error/.test(message) && /wrangler -- login/.test(advice));
  }
  assert.deepEqual(await asked(placesAt, 200, { errors: [], result: { deployments: [] } }), []);
});

/** `answer` for a deployment whose traffic is split between versions with these bindings. */
const deployed = (versions) => (url) => {
  const result = (its) => [200, { errors: [], result: its }];
  const [, number] = /\/versions\/v(\d+)$/.exec(url) ?? [];
  if (number !== undefined) {
    const metadata = { created_on: "2026-11-01T00:00:00Z", modified_on: "2026-11-01T00:00:00Z", source: "wrangler", author_email: "a@example.com" };
    const resources = { bindings: versions[number], script: { etag: "etag", handlers: ["fetch"] }, script_runtime: { usage_model: "standard" } };
    return result({ id: `v${number}`, number: 1, metadata, annotations: {}, resources });
  }
  if (!url.endsWith("/deployments")) return result([]);
  const split = versions.map((_, at) => ({ version_id: `v${at}`, percentage: 100 / versions.length }));
  return result({ deployments: [{ id: "one", created_on: "2026-11-01T00:00:00Z", source: "wrangler", author_email: "a@example.com", strategy: "percentage", annotations: {}, versions: split }] });
};

const KEYS_BOUND = { name: "SEMEL", type: "durable_object_namespace", class_name: "SemelObject" };
const placed = (text) => ({ name: "SEMEL_JURISDICTION", type: "plain_text", text });

test("wrangler tells the jurisdictions of the keys of every version that has traffic", LIMIT, async (t) => {
  const secret = { name: "SEMEL_JURISDICTION", type: "secret_text" };
  const { ask } = await cloudflare(t, deployed([[KEYS_BOUND, placed("eu")], [KEYS_BOUND], [placed("eu")], [KEYS_BOUND, secret]]));
  assert.deepEqual(await placesAt(CONFIG, ask), ["eu", "", undefined]);
});

test("a deployment over keys of another jurisdiction is refused, and uploads nothing", LIMIT, async (t) => {
  const { env, asked } = await cloudflare(t, deployed([[KEYS_BOUND, placed("eu")]]));
  const secrets = await secretsFile("placed.json", { SEMEL_ADMIN_TOKEN: TOKEN });
  const upload = run(process.execPath, [join(ROOT, "scripts/deploy.mjs"), "--config", DEMO, "--open", "--secrets-file", secrets], { env });
  await assert.rejects(upload, /These settings are not deployed:\n  SEMEL_JURISDICTION differs from that of the existing deployment/);
  assert.ok(asked.length >= 3, asked.join());
  assert.deepEqual(asked.filter((each) => !each.startsWith("GET ")), []);
});

test("wrangler runs on this Node if it is new enough, else on the Node 22 beside it", async () => {
  for (const version of ["22.12.0", "22.20.1", "26.0.0"]) assert.equal(nodeForWrangler(version), process.execPath);
  for (const version of ["20.20.2", "22.11.0"]) assert.match(await run(nodeForWrangler(version), ["--version"]), /^v22\./);
});
