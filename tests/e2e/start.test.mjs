// `npm start`, as a person runs it, and the quickstart of the README against it.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { ROOT } from "../../scripts/setup/paths.mjs";

const scratch = await mkdtemp(join(tmpdir(), "semel-start-"));
after(() => rm(scratch, { recursive: true, force: true }));

/** A port that was free a moment ago: `npm start` takes no 0, for a person wants to know the address beforehand. */
function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

/** Runs `npm start` in a process group of its own. Resolves once it serves, or once it has ended. */
async function npmStart(env) {
  const child = spawn("npm", ["start"], { cwd: ROOT, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"], detached: true });
  let output = "";
  const ended = new Promise((resolve) => child.on("close", resolve));
  const serving = new Promise((resolve) => {
    const read = (chunk) => {
      output += chunk;
      if (/serving on/.test(output)) resolve();
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
  });
  await Promise.race([serving, ended]);
  const killGroup = async () => {
    process.kill(-child.pid, "SIGKILL");
    await ended;
  };
  return { ended, killGroup, output: () => output };
}

test("it serves, tells how, keeps the state, and killing its group frees the port", async () => {
  const env = { SEMEL_PORT: String(await freePort()), SEMEL_STATE: join(scratch, "state") };
  const url = `http://127.0.0.1:${env.SEMEL_PORT}`;
  const deposit = () => fetch(`${url}/accounts/kept/deposit`, { method: "POST", headers: { "idempotency-key": "kept-1" }, body: '{"amount":5}' });

  const first = await npmStart(env);
  assert.match(first.output(), new RegExp(`serving on ${url}`));
  assert.equal((await deposit()).headers.get("semel-status"), "executed");
  const taken = await npmStart(env);
  assert.equal(await taken.ended, 1);
  assert.match(taken.output(), new RegExp(`Port ${env.SEMEL_PORT} is taken`));
  assert.match(taken.output(), /SEMEL_PORT=PORT npm start/);
  await first.killGroup();

  const started = Date.now();
  const second = await npmStart(env);
  try {
    assert.equal((await fetch(`${url}/semel/v1/health`)).status, 200);
    assert.ok(Date.now() - started < 10_000, "an unchanged checkout starts in under 10 s");
    assert.match(second.output(), /worker ledger \.\.\. unchanged/);
    assert.equal((await deposit()).headers.get("semel-status"), "replayed");
    assert.deepEqual(await (await fetch(`${url}/accounts/kept`)).json(), { id: "kept", balance: 5, entries: 1 });
  } finally {
    await second.killGroup();
  }
});

test("a port that is none is an error that says so", async () => {
  const wrong = await npmStart({ SEMEL_PORT: "http" });
  assert.equal(await wrong.ended, 1);
  assert.match(wrong.output(), /SEMEL_PORT is "http"/);
});

test("the README's quickstart does what it says", async () => {
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const commands = /<!-- quickstart -->\n```sh\n([\s\S]*?)```/.exec(readme)?.[1];
  const expected = /<!-- quickstart prints -->\n```\n([\s\S]*?)```/.exec(readme)?.[1];
  assert.ok(commands && expected, "the README has a quickstart and what it prints");
  const port = String(await freePort());
  const server = await npmStart({ SEMEL_PORT: port, SEMEL_STATE: join(scratch, "quickstart") });
  try {
    const script = join(scratch, "quickstart.sh");
    await writeFile(script, commands.replaceAll("127.0.0.1:8787", `127.0.0.1:${port}`));
    const { stdout } = await promisify(execFile)("bash", ["-eu", script], { cwd: scratch });
    assert.equal(stdout, expected);
  } finally {
    await server.killGroup();
  }
});
