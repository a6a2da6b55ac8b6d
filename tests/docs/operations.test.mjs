// Tests that `docs/operations.md` and the README name the same settings as the code, and only commands that exist.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { mkdtemp, readFile, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { SETTINGS, judge } from "../../scripts/deploy/settings.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { run } from "../../scripts/setup/step.mjs";

const read = (path) => readFile(join(ROOT, path), "utf8");
const sectionOf = (text, title) => text.split(`\n## ${title}\n`)[1].split("\n## ")[0];
const rowsOf = (text) => [...text.matchAll(/^\| `(SEMEL_[A-Z_]+)`.*?\| (.*?) \|/gm)].map(([, name, cell]) => [name, cell]);

const operations = await read("docs/operations.md");
const readme = rowsOf(sectionOf(await read("README.md"), "Settings")).map(([name]) => name);

/** The settings that the server's code reads by name. */
async function settingsOfCode() {
  const files = ["worker/host.js", "worker/router.js"];
  for (const folder of ["core/src/server", "worker/src"]) {
    for (const name of await readdir(join(ROOT, folder), { recursive: true })) if (name.endsWith(".rs")) files.push(join(folder, name));
  }
  const texts = await Promise.all(files.map(read));
  return new Set(texts.flatMap((text) => [...text.matchAll(/"(SEMEL_[A-Z_]+)"/g)].map(([, name]) => name)));
}

test("the README, the operator's table and the check before a deploy have the same settings, all of the code's among them", async () => {
  const table = rowsOf(sectionOf(operations, "Settings"));
  assert.deepEqual(table.map(([name]) => name).sort(), SETTINGS.toSorted());
  const code = await settingsOfCode();
  assert.ok(code.size >= 4, [...code].join());
  for (const name of code) assert.ok(readme.includes(name), `${name} is asked for, and not in the README`);
  assert.deepEqual(readme.toSorted(), SETTINGS.toSorted(), "the README has all of them, and no others");
});

test("the operator's table marks exactly SEMEL_JWT_KEYS and SEMEL_ADMIN_TOKEN as secrets", () => {
  const secrets = rowsOf(sectionOf(operations, "Settings")).filter(([, kind]) => kind.startsWith("secret")).map(([name]) => name);
  assert.deepEqual(secrets, ["SEMEL_JWT_KEYS", "SEMEL_ADMIN_TOKEN"]);
});

test("the secrets of the first deploy are valid, new each time, readable by their owner alone, and sign a token", async () => {
  const [, commands] = /<!-- secrets -->\n\s*```sh\n([\s\S]*?)```/.exec(operations);
  const folder = await mkdtemp(join(tmpdir(), "semel-secrets-"));
  after(() => rm(folder, { recursive: true, force: true }));
  const [, token] = /<!-- token -->\n\s*```sh\n([\s\S]*?)```/.exec(operations);
  const made = async () => {
    await run("sh", ["-ec", commands], { cwd: folder });
    return readFile(join(folder, ".semel/secrets.json"), "utf8");
  };
  const [one, other] = [await made(), await made()];
  assert.notEqual(one, other);
  assert.deepEqual(judge({ vars: { SEMEL_JWT_AUDIENCE: "semel" }, given: JSON.parse(one) }), { wrong: [], missing: [], noted: [] });
  assert.equal((await stat(join(folder, ".semel/secrets.json"))).mode & 0o077, 0);

  const [head, claims, signature] = (await run("sh", ["-ec", token], { cwd: folder })).trim().split(".");
  const [key] = JSON.parse(JSON.parse(other).SEMEL_JWT_KEYS).keys;
  const signed = createHmac("sha256", Buffer.from(key.k, "base64url")).update(`${head}.${claims}`).digest("base64url");
  const { exp, ...rest } = JSON.parse(Buffer.from(claims, "base64url"));
  assert.deepEqual([JSON.parse(Buffer.from(head, "base64url")), rest, signature], [{ alg: key.alg, typ: "JWT", kid: key.kid }, { sub: "alice", aud: "semel" }, signed]);
  assert.ok(Math.abs(exp - 3600 - Date.now() / 1000) < 60, String(exp));
});

test("rotating puts a new key before the old one, both stay valid, and the new one signs tokens", async () => {
  const [secrets, rotate, token] = ["secrets", "rotate", "token"].map((name) => new RegExp(`<!-- ${name} -->\\n\\s*\`\`\`sh\\n([\\s\\S]*?)\`\`\``).exec(operations)[1]);
  const folder = await mkdtemp(join(tmpdir(), "semel-rotating-"));
  after(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, ".semel/secrets.json");
  const made = async (commands) => {
    await run("sh", ["-ec", commands], { cwd: folder });
    const given = JSON.parse(await readFile(file, "utf8"));
    return { given, keys: JSON.parse(given.SEMEL_JWT_KEYS).keys };
  };
  const before = await made(secrets);
  const { given, keys } = await made(rotate);
  assert.deepEqual([keys.length, keys[1], given.SEMEL_ADMIN_TOKEN], [2, before.keys[0], before.given.SEMEL_ADMIN_TOKEN]);
  assert.ok(keys[0].kid !== keys[1].kid && keys[0].k !== keys[1].k);
  assert.deepEqual(judge({ vars: { SEMEL_JWT_AUDIENCE: "semel" }, given }), { wrong: [], missing: [], noted: [] });
  assert.equal((await stat(file)).mode & 0o077, 0);
  const [head] = (await run("sh", ["-ec", token], { cwd: folder })).split(".");
  assert.equal(JSON.parse(Buffer.from(head, "base64url")).kid, keys[0].kid);
});

test("every npm script and every option of deploy that the documents name exists", async () => {
  const { scripts } = JSON.parse(await read("package.json"));
  const deploy = await read("scripts/deploy.mjs");
  let named = 0;
  for (const file of ["docs/operations.md", "SECURITY.md", "CONTRIBUTING.md", "README.md"]) {
    const text = await read(file);
    for (const [, name] of text.matchAll(/npm run ([a-z:-]+)/g)) assert.ok(name in scripts, `${file}: npm run ${name}`);
    for (const [command] of text.matchAll(/npm run deploy --[^`\n]*/g)) {
      for (const [, option] of command.slice("npm run deploy --".length).matchAll(/--([a-z-]+)/g)) {
        named += 1;
        assert.match(deploy, new RegExp(`^ {2}"?${option}"?: \\{ type`, "m"), `${file}: ${command}`);
      }
    }
  }
  assert.ok(named >= 5, String(named));
});

test("the documents give files, not folders, to node --test, because some versions of Node take no folder", async () => {
  let named = 0;
  for (const file of ["docs/operations.md", "CONTRIBUTING.md", "README.md", "examples/README.md"]) {
    for (const [command, path] of (await read(file)).matchAll(/node --test ([^\s`]+)/g)) {
      assert.match(path, /\.test\.mjs$/, `${file}: ${command}`);
      named += 1;
    }
  }
  assert.ok(named >= 5, String(named));
});

test("every cargo test command for semel-core in CONTRIBUTING.md has --features server", async () => {
  const commands = (await read("CONTRIBUTING.md")).match(/cargo test -p semel-core.*/g);
  assert.deepEqual(commands.filter((command) => !command.includes(" --features server")), []);
});

test("docs/handlers.md pins wasm-bindgen at the version of Cargo.toml", async () => {
  const [, told] = /^wasm-bindgen = "(.*)"$/m.exec(await read("docs/handlers.md"));
  const [, pinned] = /^wasm-bindgen = "(.*)"$/m.exec(await read("Cargo.toml"));
  assert.equal(told, pinned);
});

test("docs/operations.md has a section for each task of an operator", () => {
  const sections = [...operations.matchAll(/^##+ (.*)$/gm)].map(([, title]) => title);
  for (const title of ["First deploy", "A custom domain", "Settings", "Rotating keys", "Upgrade and roll back", "Back in time", "Backups", "A person's data", "To leave again", "What it costs", "Limits of one key", "Splitting a hot key", "What to watch"]) {
    assert.ok(sections.includes(title), title);
  }
});

test("the table of what a million changes cost adds up, and counts with the measured rows", () => {
  const [, table] = /<!-- cost -->\n[^\n]*\n[^\n]*\n([\s\S]*?)\n<!-- \/cost -->/.exec(operations);
  const rows = table.split("\n").map((line) => line.split("|").slice(1, 5).map((cell) => cell.trim()));
  const costs = rows.slice(0, -1).map(([what, millions, price, cost]) => {
    assert.equal((millions * price).toFixed(2), cost, what);
    return millions * price;
  });
  assert.equal(rows.at(-1)[3], costs.reduce((sum, cost) => sum + cost, 0).toFixed(2));
  const [, measured] = /^\| all of a change's life, many in a burst \| (\S+) \|$/m.exec(operations);
  assert.deepEqual(rows.find(([what]) => what.startsWith("rows written")).slice(0, 2), [`rows written, ${measured} each`, measured]);
  // 0.128 is the memory in GB, as it is billed.
  const [, ms] = /duration in GB-s, (\d+) ms/.exec(table);
  assert.equal(Number(rows.find(([what]) => what.startsWith("duration"))[1]), (ms / 1000) * 0.128);
});
