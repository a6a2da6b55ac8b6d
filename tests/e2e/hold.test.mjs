// What only one process may hold at a time: the state of a server, and the set-up of a checkout.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { hold } from "../../scripts/setup/hold.mjs";
import { until } from "./lossy.mjs";

const MODULE = new URL("../../scripts/setup/hold.mjs", import.meta.url).href;
const scratch = await mkdtemp(join(tmpdir(), "semel-hold-"));
after(() => rm(scratch, { recursive: true, force: true }));

const refuse = (others) => {
  throw new Error(`held by ${others.join()}`);
};
const exits = (child) => new Promise((resolve) => child.on("exit", (code, signal) => resolve(code ?? signal)));

/** A process that holds the folder until it is killed. Resolves once it holds it. */
async function holder(t, folder) {
  const source = `const { hold } = await import(${JSON.stringify(MODULE)}); await hold(${JSON.stringify(folder)}, () => {}); console.log("held"); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], { stdio: ["ignore", "pipe", "inherit"] });
  const exited = exits(child);
  t.after(() => child.kill("SIGKILL"));
  await new Promise((resolve) => child.stdout.once("data", resolve));
  return { pid: child.pid, kill: () => (child.kill("SIGKILL"), exited) };
}

test("the holder of a folder is named to others, and the folder is free after a release or the death of the holder", async (t) => {
  const folder = join(scratch, "one");
  const first = await holder(t, folder);
  await assert.rejects(hold(folder, refuse), { message: `held by ${first.pid}` });
  await first.kill();
  const mine = await hold(folder, refuse);
  assert.equal((await readdir(folder)).length, 1, "what the dead one left is gone");
  const looks = [];
  const waiting = hold(folder, (others, nth) => looks.push([...others, nth]));
  await until(() => looks.length > 1, "it looks again");
  assert.deepEqual(looks.slice(0, 2), [[process.pid, 0], [process.pid, 1]]);
  mine.release();
  (await waiting).release();
  assert.deepEqual(await readdir(folder), []);
});

test("a folder that is held for a second process too is free only once both are gone", async (t) => {
  const folder = join(scratch, "two");
  const server = await holder(t, join(scratch, "elsewhere"));
  const watching = await hold(folder, refuse);
  watching.add(server.pid);
  // It is as if this process were killed: its own file goes, and the server's stays.
  const [own] = (await readdir(folder)).filter((name) => name.startsWith(`${process.pid}-`));
  await rm(join(folder, own));
  await assert.rejects(hold(folder, refuse), { message: `held by ${server.pid}` });
  await server.kill();
  (await hold(folder, refuse)).release();
});

test("a reused process number holds nothing, and files that are no holder are left alone", async () => {
  const folder = join(scratch, "again");
  await mkdir(folder);
  await writeFile(join(folder, `${process.pid}-1-x`), "");
  await writeFile(join(folder, ".DS_Store"), "");
  const held = hold(folder, refuse);
  // Other systems do not say when a process was started, so the number alone decides.
  if (process.platform !== "linux") return assert.rejects(held, { message: `held by ${process.pid}` });
  (await held).release();
  assert.deepEqual(await readdir(folder), [".DS_Store"]);
});

test("of many processes that want a folder at once, among leftovers of dead ones, never two hold it", async (t) => {
  const folder = join(scratch, "many");
  const log = join(scratch, "log");
  for (let dead = 0; dead < 3; dead += 1) await (await holder(t, folder)).kill();
  const source = `
    import { appendFileSync, writeFileSync } from "node:fs";
    import { setTimeout as delay } from "node:timers/promises";
    const { hold } = await import(${JSON.stringify(MODULE)});
    for (let round = 0; round < 10; round += 1) {
      const held = await hold(${JSON.stringify(folder)}, () => {});
      appendFileSync(${JSON.stringify(log)}, "in " + process.pid + "\\n");
      await delay(2);
      appendFileSync(${JSON.stringify(log)}, "out " + process.pid + "\\n");
      // One that dies in it, and leaves its file.
      if (round === 9 && process.pid % 2) process.kill(process.pid, "SIGKILL");
      held.release();
    }`;
  const children = Array.from({ length: 8 }, () => spawn(process.execPath, ["--input-type=module", "-e", source], { stdio: ["ignore", "ignore", "inherit"] }));
  t.after(() => children.forEach((child) => child.kill("SIGKILL")));
  await Promise.all(children.map(exits));
  const lines = (await readFile(log, "utf8")).trim().split("\n");
  assert.equal(lines.length, 8 * 10 * 2);
  for (let k = 0; k < lines.length; k += 2) {
    assert.match(lines[k], /^in /);
    assert.equal(lines[k + 1], lines[k].replace("in", "out"), "nobody else has it before");
  }
});
