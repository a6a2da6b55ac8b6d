// A folder that is laid out like a checkout, in which the examples run by the commands of examples/README.md.
//
// Invariants:
// - Only fixed ports are replaced.
// - Nothing is downloaded. The packages that the examples need are those that `npm ci` installed in the checkout, in the versions that the examples
//   name. They are in a folder above the examples, as in a workspace.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { RUNTIMES } from "../../scripts/setup/packages.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { SDK_PACKAGE } from "../../scripts/setup/sdk.mjs";

/** Makes the folder for a test file. `after` is node:test's. `endings`: what must be ended after the file, in reverse order. */
export async function madeCheckout(after) {
  const howTo = await readFile(join(ROOT, "examples/README.md"), "utf8");
  const checkout = await mkdtemp(join(tmpdir(), "semel-checkout-"));
  const endings = [() => rm(checkout, { recursive: true, force: true, maxRetries: 10 })];
  after(async () => {
    for (const end of endings.reverse()) await end();
  });

  /** Lays out the folder. `pages`: the examples with a page, by their names. */
  async function layOut(pages) {
    const isSource = (path) => !/\/(node_modules|dist)$/.test(path);
    await cp(join(ROOT, "examples"), join(checkout, "examples"), { recursive: true, filter: isSource });
    await cp(SDK_PACKAGE, join(checkout, "sdk/npm"), { recursive: true });
    await symlink(join(ROOT, "node_modules"), join(checkout, "node_modules"));
    for (const [name, { modules }] of Object.entries(pages)) if (modules) await lend(join(checkout, "examples", name, "package.json"), modules);
    // Only vite itself is linked: the folder it is in has other versions of Node too.
    await mkdir(join(checkout, "examples/node_modules/.bin"));
    await symlink(join(RUNTIMES, "node_modules/.bin/vite"), join(checkout, "examples/node_modules/.bin/vite"));
  }

  /**
   * Links the packages that a manifest names into a folder above, and removes them from the manifest. npm would otherwise want all of them, for every
   * platform.
   */
  async function lend(manifest, modules) {
    await replace(manifest, "8080", "0");
    const { devDependencies, dependencies, ...others } = JSON.parse(await readFile(manifest, "utf8"));
    for (const [name, version] of Object.entries({ ...devDependencies, ...dependencies })) {
      const installed = join(modules, "node_modules", name);
      assert.equal(version, JSON.parse(await readFile(join(installed, "package.json"), "utf8")).version, `${manifest} and the tests have the same ${name}`);
      const link = join(checkout, "examples/node_modules", name);
      await mkdir(dirname(link), { recursive: true });
      await symlink(installed, link).catch(({ code }) => assert.equal(code, "EEXIST"));
    }
    await writeFile(manifest, JSON.stringify(others));
  }

  async function replace(path, from, to) {
    const text = await readFile(path, "utf8");
    assert.ok(text.includes(from), `${path} has ${from}`);
    await writeFile(path, text.replaceAll(from, to));
  }

  /** The commands in examples/README.md under this name. */
  function commands(name) {
    const [, script] = new RegExp(`<!-- ${name} -->\n\`\`\`sh\n([\\s\\S]*?)\`\`\``).exec(howTo) ?? [];
    assert.ok(script, `examples/README.md has the commands of ${name}`);
    return script.replaceAll(":8080", ":0");
  }

  /**
   * Starts a script in the folder of the checkout, and ends it after this file. npm would build before packing; that is skipped, because the checkout
   * is built.
   */
  function begin(script) {
    const settings = { offline: true, ignore_scripts: true, audit: false, fund: false, update_notifier: false, cache: join(checkout, "cache") };
    const env = { ...process.env, ...Object.fromEntries(Object.entries(settings).map(([name, value]) => [`npm_config_${name}`, String(value)])) };
    const child = spawn("bash", ["-euc", script], { cwd: checkout, env, stdio: ["pipe", "pipe", "pipe"], detached: true });
    const ran = { child, stdout: "", output: "" };
    child.stdout.on("data", (chunk) => (ran.stdout += chunk));
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (ran.output += chunk));
    ran.ended = new Promise((resolve) => child.on("close", resolve));
    endings.push(() => {
      if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid, "SIGKILL");
      return ran.ended;
    });
    return ran;
  }

  /** Resolves to what the script printed. */
  async function run(script) {
    const ran = begin(script);
    assert.equal(await ran.ended, 0, ran.output);
    return ran.stdout;
  }

  return { checkout, endings, layOut, replace, commands, begin, run };
}
