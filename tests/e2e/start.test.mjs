// `npm start`, as a person runs it, and the quickstart of the README against it.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { hold } from "../../scripts/setup/hold.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { until } from "./lossy.mjs";
import { npmStart } from "./npm-start.mjs";

const scratch = await mkdtemp(join(tmpdir(), "semel-start-"));
after(() => rm(scratch, { recursive: true, force: true }));

const killByPage = (url) => fetch(`${url}/lab/server/kill`, { method: "POST", headers: { origin: url } }).catch(() => {});
const isUp = (url) => fetch(`${url}/semel/v1/health`).then(({ ok }) => ok, () => false);
const isLiving = (pid) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

/** The living processes that hold a state, by number: `server`, and `watching`, which watches over it. */
async function holdersOf(state) {
  const holders = {};
  for (const name of await readdir(join(state, "holders")).catch(() => [])) {
    const pid = Number.parseInt(name, 10);
    const command = await promisify(execFile)("ps", ["-o", "args=", "-p", String(pid)]).then(({ stdout }) => stdout, () => "");
    if (/start\.mjs/.test(command)) holders.watching = pid;
    if (/workerd.* serve /.test(command)) holders.server = pid;
  }
  return holders;
}

test("npm start serves, says what to do about a taken port, keeps its state, and frees the port if its group is killed", async (t) => {
  const state = join(scratch, "state");
  const deposit = (url) => fetch(`${url}/accounts/kept/deposit`, { method: "POST", headers: { "idempotency-key": "kept-1" }, body: '{"amount":5}' });

  const first = await npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: state });
  assert.ok(first.url, first.output());
  assert.equal((await deposit(first.url)).headers.get("semel-status"), "executed");
  assert.equal((await stat(join(state, "config.capnp"))).mode & 0o077, 0, "the administrator's token is in it");
  const env = { SEMEL_PORT: new URL(first.url).port, SEMEL_STATE: state };
  const taken = await npmStart(t, env);
  assert.equal(await taken.ended, 1);
  assert.match(taken.output(), new RegExp(`Port ${env.SEMEL_PORT} is taken`));
  assert.match(taken.output(), /SEMEL_PORT=PORT npm start/);
  await first.killGroup();

  const started = Date.now();
  const second = await npmStart(t, env);
  assert.equal(second.url, first.url, second.output());
  assert.equal((await fetch(`${second.url}/semel/v1/health`)).status, 200);
  assert.ok(Date.now() - started < 10_000, "an unchanged checkout starts in under 10 s");
  assert.match(second.output(), /worker ledger \.\.\. unchanged/);
  assert.equal((await deposit(second.url)).headers.get("semel-status"), "replayed");
  assert.deepEqual(await (await fetch(`${second.url}/accounts/kept`)).json(), { id: "kept", balance: 5, entries: 1 });
});

test("npm start ends, and leaves nothing running, once nobody reads its output", async (t) => {
  const state = join(scratch, "unread");
  const started = await npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: state });
  assert.ok(started.url, started.output());
  const { server } = await holdersOf(state);
  t.after(() => isLiving(server) && process.kill(server, "SIGKILL"));
  started.leave();
  // The kill makes it print something.
  await killByPage(started.url);
  await started.ended;
  assert.deepEqual([await isUp(started.url), isLiving(server), await holdersOf(state)], [false, false, {}]);
});

test("a server that its page kills comes back with its state, and Ctrl-C ends npm start even while it is down", async (t) => {
  const started = await npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: join(scratch, "killed") });
  const { url } = started;
  assert.ok(url, started.output());
  const deposit = () => fetch(`${url}/accounts/killed/deposit`, { method: "POST", headers: { "idempotency-key": "once" }, body: '{"amount":5}' });
  assert.equal((await deposit()).headers.get("semel-status"), "executed");
  await killByPage(url);
  await until(async () => !(await isUp(url)), "it is gone");
  await until(() => isUp(url), "it is back");
  assert.equal((await deposit()).headers.get("semel-status"), "replayed");
  await killByPage(url);
  await until(async () => !(await isUp(url)), "it is gone");
  started.interrupt();
  await started.ended;
  assert.doesNotMatch(started.output(), /What to do|Error/);
  assert.equal(await isUp(url), false, "it does not come back");
});

test("a SEMEL_PORT that is no port is an error that says so", async (t) => {
  const wrong = await npmStart(t, { SEMEL_PORT: "http" });
  assert.equal(await wrong.ended, 1);
  assert.match(wrong.output(), /SEMEL_PORT is "http"/);
});

test("a state has one server: another is refused while it runs, restarted or unwatched, and is served after its end", async (t) => {
  const env = { SEMEL_PORT: "0", SEMEL_STATE: join(scratch, "held") };
  const first = await npmStart(t, env);
  assert.ok(first.url, first.output());
  const refused = await npmStart(t, env);
  assert.equal(await refused.ended, 1, refused.output());
  assert.match(refused.output(), /A server is running on the state in .*held: process \d+ or \d+\.\n\nWhat to do: .*SEMEL_STATE=FOLDER npm start/);
  const before = await holdersOf(env.SEMEL_STATE);
  await killByPage(first.url);
  await until(async () => !(await isUp(first.url)), "it is gone");
  await until(() => isUp(first.url), "it is back");
  const { watching, server } = await holdersOf(env.SEMEL_STATE);
  assert.equal(watching, before.watching);
  assert.notEqual(server, before.server);
  t.after(() => isLiving(server) && process.kill(server, "SIGKILL"));
  process.kill(watching, "SIGKILL");
  await first.ended;
  assert.ok(await isUp(first.url), "the server goes on, and nobody watches over it");
  const still = await npmStart(t, env);
  assert.equal(await still.ended, 1, still.output());
  assert.match(still.output(), new RegExp(`A server is running on the state in .*: process ${server}\\.`));
  process.kill(server, "SIGKILL");
  await until(async () => !(await isUp(first.url)), "it is gone");
  const next = await npmStart(t, env);
  assert.ok(next.url, next.output());
  next.interrupt();
  await next.ended;
  assert.deepEqual(await readdir(join(env.SEMEL_STATE, "holders")), []);
});

test("a signal while the server starts ends the server too, and frees its state", async (t) => {
  const state = join(scratch, "early");
  const starting = npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: state });
  // The signal comes as soon as both processes are there. The server still takes a while to listen.
  const holders = await until(async () => {
    const found = await holdersOf(state);
    return found.watching && found.server && found;
  }, "the server is started");
  process.kill(holders.watching, "SIGTERM");
  const ended = await starting;
  assert.equal(await ended.ended, 0, ended.output());
  assert.equal(isLiving(holders.server), false);
  assert.deepEqual(await readdir(join(state, "holders")), []);
});

test("a signal to npm itself ends the server, and frees its state", async (t) => {
  const state = join(scratch, "ended");
  const started = await npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: state });
  assert.ok(started.url, started.output());
  const { watching, server } = await holdersOf(state);
  t.after(() => [watching, server].filter(isLiving).forEach((pid) => process.kill(pid, "SIGKILL")));
  started.terminate();
  await until(() => ![watching, server].some(isLiving), "both are gone");
  assert.deepEqual(await readdir(join(state, "holders")), []);
});

test("an empty SEMEL_STATE or SEMEL_PORT counts as not set", async (t) => {
  const usual = join(ROOT, ".semel/state");
  // The test must not use this state. So it holds it, unless a server of the developer's does.
  const held = await hold(join(usual, "holders"), () => assert.fail("held")).catch(() => {});
  t.after(() => held?.release());
  const refused = await npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: "" });
  assert.match(refused.output(), new RegExp(`A server is running on the state in ${usual}: `));
  const wrong = await npmStart(t, { SEMEL_PORT: "", SEMEL_ADMIN_TOKEN: "short" });
  assert.match(wrong.output(), /SEMEL_ADMIN_TOKEN is too short/, "the port is not what is wrong");
});

test("an administrator's token or a folder of the state that can't be used is an error that says so", async (t) => {
  const short = await npmStart(t, { SEMEL_PORT: "0", SEMEL_ADMIN_TOKEN: "dev", SEMEL_STATE: join(scratch, "short") });
  assert.equal(await short.ended, 1, short.output());
  assert.match(short.output(), /SEMEL_ADMIN_TOKEN is too short: it has at least 16 characters/);
  const spaced = await npmStart(t, { SEMEL_PORT: "0", SEMEL_ADMIN_TOKEN: "a token with spaces in it", SEMEL_STATE: join(scratch, "spaced") });
  assert.equal(spaced.url, undefined, spaced.output());
  assert.match(spaced.output(), /SEMEL_ADMIN_TOKEN has characters that no header can hold/);
  await writeFile(join(scratch, "file"), "");
  const none = await npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: join(scratch, "file/state") });
  assert.equal(await none.ended, 1, none.output());
  assert.match(none.output(), /The folder of the state, .*file\/state, can't be used: ENOTDIR/);
  assert.doesNotMatch(none.output(), /\n +at /);
  // A folder in which nothing can be written.
  await mkdir(join(scratch, "shut"));
  await writeFile(join(scratch, "shut/holders"), "");
  const shut = await npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: join(scratch, "shut") });
  assert.equal(await shut.ended, 1, shut.output());
  assert.match(shut.output(), /The folder of the state, .*shut, can't be used: EEXIST/);
  assert.doesNotMatch(shut.output(), /\n +at /);
});

test("the README's quickstart does what it says", async (t) => {
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const commands = /<!-- quickstart -->\n```sh\n([\s\S]*?)```/.exec(readme)?.[1];
  const expected = /<!-- quickstart prints -->\n```\n([\s\S]*?)```/.exec(readme)?.[1];
  assert.ok(commands && expected, "the README has a quickstart and what it prints");
  const { url, output } = await npmStart(t, { SEMEL_PORT: "0", SEMEL_STATE: join(scratch, "quickstart") });
  assert.ok(url, output());
  const script = join(scratch, "quickstart.sh");
  await writeFile(script, commands.replaceAll("http://127.0.0.1:8787", url));
  const { stdout } = await promisify(execFile)("bash", ["-eu", script], { cwd: scratch });
  assert.equal(stdout, expected);
});
