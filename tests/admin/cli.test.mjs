// Tests `npx semel`, packed and installed, against the made-up deployment: what it finds and prints, what it refuses, its exit codes, where it runs.
// `cli-changes.test.mjs` has the changes that it makes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { open, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, test } from "node:test";
import { BINARIES } from "../runtimes/binaries.mjs";
import { idIn, installed, jsonOf, linesOf } from "./cli.mjs";
import { TOKEN, USERS_TOKEN } from "./fake.mjs";
import { FOREIGN, HEAVY, HOSTILE, KEYS, NOW_MS, SMALL, effectIdOf, idOf, keys, mix, numberOf, outcomeOf, recordOf, stateOf } from "./world.mjs";

const LIMIT = { timeout: 30_000 };
/** For a test that starts the command some fifty times. */
const LIMIT_OF_MANY = { timeout: 120_000 };
const { fake, folder, COMMAND, begin, semel } = await installed(after);

test("keys prints a table of as many keys as --limit says, in the order that --order says", LIMIT, async () => {
  const { code, stdout, stderr } = await semel(["keys", "--order", "heaviest", "--limit", "3"]);
  const [head, ...rows] = linesOf(stdout);
  assert.deepEqual([code, stderr, rows.length], [0, `3 of ${KEYS.toLocaleString("en-US")} keys\n`, 3]);
  assert.match(head, /^KEY +RECORDS +TOMBSTONES +SIZE +CREATED +LAST REPORT$/);
  assert.match(rows[0], /^orders\/everything +580,000 +1,680,000 +310 MB +\d+ days ago +\d+ h ago$/);
});

test("keys says 1 of 1 key if only one key is found", LIMIT, async () => {
  const only = keys[4_321].key;
  const found = keys.filter(({ key }) => key.startsWith(only)).length;
  assert.equal(found, 1);
  const { stderr } = await semel(["keys", "--prefix", only]);
  assert.equal(stderr, "1 of 1 key\n");
});

test("keys --all --order heaviest --json prints every key once, by size, and asks for its pages by name", LIMIT, async () => {
  const before = fake.calls.length;
  const { code, stdout, stderr } = await semel(["--json", "keys", "--all", "--order", "heaviest"]);
  assert.deepEqual([code, stderr], [0, ""]);
  const byName = [...keys].sort((one, other) => (one.key < other.key ? -1 : 1));
  assert.deepEqual(jsonOf(stdout), byName.toSorted((one, other) => other.bytes - one.bytes));
  const orders = fake.calls.slice(before).map(({ path }) => /\/keys\?.*order=(\w+)/.exec(path)?.[1]);
  assert.deepEqual([...new Set(orders.filter(Boolean))], ["name"], "a place that does not change");
});

test("keys --all --order name --json prints every key once, one a line, as the API returns them", LIMIT, async () => {
  const { code, stdout, stderr } = await semel(["--json", "keys", "--all", "--order", "name"]);
  const all = jsonOf(stdout);
  assert.deepEqual([code, stderr], [0, ""]);
  assert.deepEqual(all, [...keys].sort((one, other) => (one.key < other.key ? -1 : 1)));
});

test("keys --prefix prints only the keys that begin so, and finding none is no failure", LIMIT, async () => {
  const { stdout } = await semel(["keys", "--prefix", "carts/", "--limit", "450", "--json"]);
  assert.deepEqual([jsonOf(stdout).length, jsonOf(stdout).every(({ key }) => key.startsWith("carts/"))], [450, true]);
  assert.deepEqual(await semel(["keys", "--prefix", "none/"]), { code: 0, stdout: "", stderr: "There are no such keys.\n" });
  assert.deepEqual(await semel(["keys", "--prefix", "none/", "--json"]), { code: 0, stdout: "", stderr: "" });
});

test("keys --hash finds, among all keys, the one that a log line names by the beginning of its hash", LIMIT, async () => {
  const hash = createHash("sha256").update(SMALL).digest("hex").slice(0, 16);
  const { code, stdout, stderr } = await semel(["keys", "--hash", hash.toUpperCase()]);
  assert.deepEqual([code, stderr], [0, "1 of 10,000 keys\n"]);
  assert.match(stdout, /^KEY .*\naccounts\/alice .*\n$/);
  assert.deepEqual(jsonOf((await semel(["keys", "--hash", hash, "--order", "heaviest", "--json"])).stdout).map(({ key }) => key), [SMALL]);
  assert.deepEqual(await semel(["keys", "--hash", "0".repeat(16)]), { code: 0, stdout: "", stderr: "There are no such keys.\n" });
});

test("keys --state parked lists the keys with a parked effect", LIMIT, async () => {
  fake.park(SMALL);
  const some = await semel(["keys", "--state", "parked"]);
  assert.match(some.stdout, /^KEY +RECORDS +PARKED +SIZE .*\naccounts\/alice +\d+ +1 +\d/);
  assert.equal(some.stderr, "1 of 1 key, as they told the registry last. What changed within the last minute may not be there yet.\n");
});

test("show prints a key, or one of its requests with its life and its outcome, as text and as JSON", LIMIT, async () => {
  const key = await semel(["show", HEAVY]);
  assert.equal(key.code, 0);
  assert.match(key.stdout, /^orders\/everything\n {2}records +580,000 {2}58 % of 1,000,000\n {2}tombstones +1,680,000 {2}84 % of 2,000,000\n/);
  assert.match(key.stdout, /\n {2}sessions +1,200 {2}1\.2 % of 100,000\n/);
  const json = await semel(["show", HEAVY, "--json"]);
  assert.deepEqual(Object.keys(JSON.parse(json.stdout)), ["key", "now", "records", "tombstones", "inDoubt", "bytes", "sessions", "oldest", "retentionSeconds", "fence", "forgottenBefore", "recordsMax", "tombstonesMax", "sessionsMax", "bytesMax", "counters"]);
  const id = idIn("executed", (n) => n % 10 !== 9 && mix(n, 12) % 8 > 3);
  const record = await semel(["show", SMALL, id]);
  assert.match(record.stdout, /executed: It ran once\.[\s\S]*principal +user-\d+[\s\S]*first sent[\s\S]*executed, \d+ h ago[\s\S]*latest deadline[\s\S]*outcome expires[\s\S]*Status 200[\s\S]*"balance": \d+/);
  const n = Math.floor(Number.parseInt(id.slice(0, 8), 16) / 4_294);
  const { fingerprint, ...rest } = JSON.parse((await semel(["show", SMALL, id, "--json"])).stdout);
  assert.match(fingerprint, /^[0-9a-f]{64}$/);
  assert.deepEqual(rest, { ...recordOf(numberOf(SMALL), n), outcome: outcomeOf(n) });
});

test("a hostile name of a key, and the bytes of a binary outcome, can't steer a terminal", LIMIT, async () => {
  const hostile = await semel(["show", HOSTILE]);
  assert.equal(hostile.code, 0);
  assert.ok(hostile.stdout.startsWith(HOSTILE));
  const id = idIn("executed", (n) => mix(n, 12) % 8 === 2);
  const { stdout } = await semel(["show", SMALL, id]);
  assert.match(stdout, /000000 {2}([0-9a-f]{2} ){16}/);
  assert.doesNotMatch(stdout, /[^\x20-\x7e\n]/);
});

test("what is not there, a refused token and an unreachable server are failures, and the message says what to do", LIMIT, async () => {
  for (const [args, env, says] of [
    [["show", "nobody"], {}, /^There is no such key here\.\n.*deleted.* A key that is of a path has no first slash, and nothing in it is escaped\./],
    [["show", SMALL, "nobody"], {}, /^This key knows no such id\./],
    [["keys"], { SEMEL_ADMIN_TOKEN: "wrong" }, /^The administration token was refused\.\nGive the value of SEMEL_ADMIN_TOKEN/],
    [["keys"], { SEMEL_ADMIN_TOKEN: USERS_TOKEN }, /^This token is not the administrator's\./],
    [["keys", "--timeout", "0"], { SEMEL_URL: fake.url.replace("http:", "https:") }, /^The server can't be reached: .*SSL.*\nCheck the address/],
  ]) {
    const { code, stdout, stderr } = await semel(args, { env });
    assert.deepEqual([code, stdout], [1, ""]);
    assert.match(stderr, says);
  }
  const { stderr } = await semel(["show", "nobody", "--json"]);
  assert.deepEqual(JSON.parse(stderr), { error: { code: "not-found", status: 404, message: "the key has no tables" } });
});

test("wrong usage says what is wrong, sends no request, and exits with 2", LIMIT_OF_MANY, async () => {
  const calls = fake.calls.length;
  for (const [args, says, env] of [
    [[], /Usage: semel/],
    [["turn"], /unknown command 'turn'/],
    [["keys", "--order", "up"], /Allowed choices are newest, heaviest, name/],
    [["keys", "--state", "executed"], /Allowed choices are in-doubt, parked/],
    [["keys", "--limit", "0"], /from 1 to 1000000/],
    [["keys", "--hash", "accounts/alice"], /8 to 64 hexadecimal digits/],
    [["keys", "--hash", "0123456789abcdef", "--limit", "1"], /cannot be used with/],
    [["keys", "--limit", "1", "--all"], /cannot be used with/],
    [["show"], /missing required argument 'key'/],
    [["forget"], /required option '--before <when>' not specified/],
    [["forget", "--before", "soon"], /neither an age/],
    [["forget", "--before", "999999999w", "--yes"], /neither an age/],
    [["forget", "--before", "30d"], /Add --yes/],
    [["cancel", SMALL, "-V1StGXR8"], /-V1StGXR8 begins with a dash\..* goes behind --/],
    [["delete", SMALL, "-yy"], /-yy begins with a dash/],
    [["delete", SMALL], /Add --yes/],
    [["delete", SMALL, "x"], /Add --yes/],
    [["delete", SMALL, "--yes"], /would be the key with all its data\. .* add --whole/],
    [["delete", SMALL, "x", "--whole", "--yes"], /--whole deletes a whole key/],
    [["resolve", SMALL, "x"], /required option '--executed <word>' not specified/],
    [["resolve", SMALL, "x", "--executed", "maybe"], /Allowed choices are yes, no/],
    [["resolve", SMALL, "x", "--executed", "yes", "--yes"], /give its --status/],
    [["resolve", SMALL, "x", "--executed", "yes", "--status", "500"], /from 200 to 499/],
    [["resolve", SMALL, "x", "--executed", "no", "--status", "200"], /A request that did not run has no outcome/],
    [["resolve", SMALL, "x", "--executed", "no"], /Add --yes/],
    [["effects", SMALL, "--drop", effectIdOf(1)], /Add --yes/],
    [["effects", SMALL, "--drop", effectIdOf(1), "--retry", effectIdOf(1)], /cannot be used with/],
    [["effects", SMALL, "--retry", "7"], /32 hexadecimal digits/],
    [["keys", "--timeout", "x"], /from 0 to 86400/],
    [["keys"], /Give --url or SEMEL_URL/, { SEMEL_URL: "" }],
    [["keys"], /it must be an origin/, { SEMEL_URL: "ftp://x" }],
    [["keys", "--url", `${fake.url}/semel`], /it must be an origin/],
    [["keys", "--url", "http://127.0.0.1:99999"], /it must be an origin/],
    ...["http://api.example.com", "http://api.example.com:8787/", "http://127.0.0.2:8787", "http://localhost.example.com", "http://api.localhost", "http://[::2]"].map((url) => [["keys", "--url", url], /--url begins with http:\/\/.* in clear text\. Give it with https:\/\//]),
    [["keys"], /SEMEL_URL begins with http:\/\/.*in clear text/, { SEMEL_URL: "http://api.example.com" }],
    [["keys"], /There is no administration token/, { SEMEL_ADMIN_TOKEN: "" }],
    [["keys"], /characters that a token can't have/, { SEMEL_ADMIN_TOKEN: "a b\n" }],
  ]) {
    const { code, stdout, stderr } = await semel(args, { env });
    assert.deepEqual([code, stdout], [2, ""], args.join(" "));
    assert.match(stderr, says);
    const asJson = await semel([...args, "--json"], { env });
    assert.deepEqual([asJson.code, asJson.stdout], [2, ""], args.join(" "));
    const { code: name, message } = JSON.parse(asJson.stderr).error;
    assert.equal(name, "usage");
    if (args.length > 0) assert.match(message, says);
  }
  assert.equal(fake.calls.length, calls);
});

test("--help describes each command with an example, and --version prints the version of the package", LIMIT, async () => {
  for (const name of ["keys", "show", "effects", "forget", "cancel", "resolve", "delete"]) {
    const { code, stdout } = await semel([name, "--help"]);
    assert.equal(code, 0);
    assert.match(stdout, new RegExp(`^Usage: semel ${name}[\\s\\S]*--timeout[\\s\\S]*Examples?:\\n {2}semel ${name} `));
  }
  assert.match((await semel(["--help"])).stdout, /SEMEL_ADMIN_TOKEN[\s\S]*Exit codes:/);
  const { version } = JSON.parse(await readFile(join(folder, "node_modules/semel/package.json"), "utf8"));
  assert.deepEqual(await semel(["--version"]), { code: 0, stdout: `${version}\n`, stderr: "" });
});

test("records lists a page of records, or with --state those of all pages in one state", LIMIT, async () => {
  const all = Array.from({ length: 1_200 }, (_, n) => n);
  const ids = (state) => all.filter((n) => state === undefined || stateOf(n) === state).map((n) => idOf(numberOf(SMALL), n));
  const shown = await semel(["records", SMALL, "--limit", "3"]);
  const [head, ...rows] = linesOf(shown.stdout);
  assert.match(head, /^ID +STATE +CHANGED +PRINCIPAL +STATUS +SIZE$/);
  assert.deepEqual(rows.map((row) => row.split(" ")[0]), ids().slice(0, 3));
  assert.deepEqual([shown.code, shown.stderr], [0, "3 records, and there may be more\n"]);
  // This key's records all came in one page.
  const told = async (limit) => (await semel(["records", FOREIGN, "--limit", limit])).stderr;
  assert.deepEqual([await told("11"), await told("12")], ["11 records, and there may be more\n", "12 records\n"]);
  const found = async (...args) => jsonOf((await semel(["records", SMALL, "--json", ...args])).stdout).map(({ id }) => id);
  assert.deepEqual(await found("--state", "poisoned"), ids("poisoned"));
  assert.deepEqual(await found("--state", "executed"), ids("executed").slice(0, 50));
  assert.deepEqual(await found("--state", "executed", "--all"), ids("executed"));
  assert.deepEqual(await semel(["records", SMALL, "--state", "in-doubt"]), { code: 0, stdout: "", stderr: "There are no such records.\n" });
  assert.equal((await semel(["records", SMALL, "--state", "lost"])).code, 2);
});

test("a deployment address with a password is wrong usage, and the password is not printed", LIMIT, async () => {
  const secret = fake.url.replace("//", "//admin:hush@");
  const { code, stdout, stderr } = await semel(["cancel", SMALL, "a"], { env: { SEMEL_URL: secret } });
  assert.deepEqual([code, stdout], [2, ""]);
  assert.match(stderr, /it must be an origin/);
  assert.doesNotMatch(stderr, /hush/);
});

test("control characters in a deployment's answers can't steer the terminal", LIMIT, async (t) => {
  const steering = "\u001b]0;owned\u0007";
  const record = { id: "a", state: steering, at: NOW_MS, principal: null, firstSent: null, deadline: null, lapses: null, crashes: null, status: null, bytes: null };
  const stats = { key: SMALL, now: NOW_MS, oldest: null, records: 1, tombstones: 0, sessions: 0, bytes: 1, recordsMax: 9, tombstonesMax: 9, sessionsMax: 9, bytesMax: 9, retentionSeconds: 1, fence: 0, forgottenBefore: 0, counters: { [steering]: 1 } };
  const host = createServer((request, response) => {
    const body = request.url.includes("/records?") ? { records: [record], next: null } : request.url.includes("/records/") ? { ...record, executed: "yes", outcome: null } : stats;
    response.writeHead(200, { "semel-status": "read", "semel-now": String(NOW_MS) }).end(JSON.stringify(body));
  });
  await new Promise((resolve) => host.listen(0, "127.0.0.1", resolve));
  t.after(() => host.closeAllConnections() ?? host.close());
  for (const args of [["records", SMALL], ["show", SMALL], ["show", SMALL, "a"]]) {
    const { code, stdout } = await semel([...args, "--url", `http://127.0.0.1:${host.address().port}`]);
    assert.equal(code, 0, args.join(" "));
    assert.match(stdout, /\\u\{1b\}\]0;owned/);
    assert.ok(!stdout.includes("\u001b"), args.join(" "));
  }
});

test("if the reader of stdout closes it early, the command ends without an error", LIMIT, async () => {
  const ran = begin(["keys", "--all", "--json"]);
  ran.child.stdout.once("data", () => ran.child.stdout.destroy());
  const { code, stderr } = await ran.ended;
  assert.deepEqual([code, stderr], [0, ""]);
});

test("output that can't be written, such as to a full disk, is reported, and is a failure", { ...LIMIT, skip: process.platform !== "linux" }, async (t) => {
  const full = await open("/dev/full", "w");
  t.after(() => full.close());
  const child = spawn(COMMAND, ["cancel", SMALL, "never"], { env: { PATH: process.env.PATH, SEMEL_URL: fake.url, SEMEL_ADMIN_TOKEN: TOKEN }, stdio: ["ignore", full.fd, "pipe"] });
  const [ended, said] = await Promise.all([once(child, "close"), child.stderr.toArray()]);
  assert.match(`${ended[0]} ${said.join("")}`, /^1 What the command has to say could not be written: ENOSPC[^\n]*\n$/);
});

test("a failed command exits with 1 even if nobody reads its output", LIMIT, async () => {
  const ran = begin(["cancel", SMALL, idIn("executed"), "--json"]);
  ran.child.stdout.destroy();
  assert.equal((await ran.ended).code, 1);
});

for (const name of ["node-20.0", "node-22", "node-26"]) {
  test(`the command runs on ${name}`, LIMIT, async () => {
    fake.faults.push({ on: "change", kind: "lose-answer" });
    const { code, stdout, stderr } = await semel(["cancel", SMALL, `never-${name}`], { node: BINARIES[name].path });
    assert.deepEqual([code, stdout], [0, "It is cancelled: from now on it never runs.\n"], stderr);
  });
}
