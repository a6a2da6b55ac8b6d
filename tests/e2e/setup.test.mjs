// The parts of the set-up that decide something: what is unchanged, what is too large, what is missing.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmod, cp, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { findBrowser } from "../../scripts/setup/browser.mjs";
import { findFirefox, haveFirefox } from "../../scripts/setup/firefox.mjs";
import { findWebKit, haveWebKit } from "../../scripts/setup/webkit.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { rustForWasm } from "../../scripts/setup/rust-wasm.mjs";
import { SDK_PACKAGE, sizeOf, sizeOfSessions } from "../../scripts/setup/sdk.mjs";
import { hashOf, onceFor } from "../../scripts/setup/stamp.mjs";
import { StepError, run } from "../../scripts/setup/step.mjs";
import { OWN_GZIP_BYTES_MAX, checkSize, imported } from "../../scripts/setup/worker.mjs";
import { until } from "./lossy.mjs";

const scratch = await mkdtemp(join(tmpdir(), "semel-setup-"));
after(() => rm(scratch, { recursive: true, force: true }));

test("sources are built again if a name or content has changed, and not otherwise", async () => {
  const folder = join(scratch, "sources");
  const source = relative(ROOT, folder);
  const stamp = join(scratch, "stamp");
  await run("mkdir", [folder]);
  await writeFile(join(folder, "one"), "a");
  let builds = 0;
  const build = async () => onceFor(stamp, await hashOf([source]), async () => void (builds += 1));
  await build();
  assert.equal(await build(), "unchanged");
  await writeFile(join(folder, "one"), "b");
  await build();
  await run("mv", [join(folder, "one"), join(folder, "two")]);
  await build();
  assert.equal(await build(), "unchanged");
  assert.equal(builds, 3);
});

test("after a build that failed, the sources of the build before it are built again too", async () => {
  const stamp = join(scratch, "failing");
  await onceFor(stamp, "same", async () => {});
  await assert.rejects(onceFor(stamp, "other", () => Promise.reject(new Error("it failed"))), /it failed/);
  let isBuilt = false;
  await onceFor(stamp, "same", async () => void (isBuilt = true));
  assert.ok(isBuilt);
});

/**
 * A checkout that has only the set-up, and that nothing else sets up meanwhile. `execute` runs a script in it, and resolves to what that prints.
 * `twice` runs the script two at a time, and creates the file `go` once one of them prints that it waits.
 */
async function checkoutOf(name) {
  const folder = join(scratch, name);
  await cp(join(ROOT, "scripts/setup"), join(folder, "scripts/setup"), { recursive: true });
  const execute = (source, env) => run(process.execPath, ["--input-type=module", "-e", source], { cwd: folder, env });
  const twice = async (source, env) => {
    const children = [0, 1].map(() => spawn(process.execPath, ["--input-type=module", "-e", source], { cwd: folder, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] }));
    after(() => children.forEach((child) => child.kill("SIGKILL")));
    const printed = ["", ""];
    for (const [at, { stdout }] of children.entries()) stdout.on("data", (chunk) => (printed[at] += chunk));
    const ended = Promise.all(children.map((child) => once(child, "close")));
    await until(() => printed.some((text) => text.startsWith("waiting")), "one waits");
    await writeFile(join(folder, "go"), "");
    assert.deepEqual(await ended, [[0, null], [0, null]]);
    return printed.toSorted();
  };
  return { folder, execute, twice };
}

test("of two processes that build the same at once, the second waits, says so, and finds it built", async () => {
  const { folder, execute, twice } = await checkoutOf("built twice");
  const source = `
    import { access, mkdir, readFile, rm, writeFile } from "node:fs/promises";
    import { setTimeout as delay } from "node:timers/promises";
    import { onceFor } from "./scripts/setup/stamp.mjs";
    const build = async () => {
      await rm("output", { recursive: true, force: true });
      await mkdir("output");
      // A step that is built by itself, while the other waits.
      while (await access("go").catch(() => true)) await delay(20);
      await onceFor("build/step.stamp", "same", async () => void (await writeFile("output/step", "whole")));
      return "built " + (await readFile("output/step", "utf8"));
    };
    console.log(await onceFor("build/stamp", "same", build));`;
  const printed = await twice(source);
  assert.equal(printed[0], "built whole\n");
  assert.match(printed[1], /^waiting for process \d+, which sets up this checkout too\nunchanged\n$/);
  assert.equal(await readFile(join(folder, "output/step"), "utf8"), "whole");
  assert.equal(await execute(source), "unchanged\n", "nobody waits where there is nothing to build");
});

test("of two processes that install packages at once, the second waits and finds them; a killed one holds nobody up", async () => {
  const { folder, execute, twice } = await checkoutOf("installed twice");
  const bin = join(folder, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "npm"), "#!/bin/sh\necho in >> log\nrm -rf node_modules\n[ -e killed ] && kill -9 $PPID && exit\nuntil [ -e go ]; do sleep 0.05; done\nmkdir node_modules\necho out >> log\n");
  await chmod(join(bin, "npm"), 0o755);
  await writeFile(join(folder, "package-lock.json"), "{}");
  const source = 'const { installPackages } = await import("./scripts/setup/packages.mjs"); console.log(await installPackages());';
  const env = { PATH: `${bin}:${process.env.PATH}` };
  await writeFile(join(folder, "killed"), "");
  await assert.rejects(execute(source, env), /ended by SIGKILL/);
  await rm(join(folder, "killed"));
  await rm(join(folder, "log"));
  const printed = await twice(source, env);
  assert.equal(printed[0], "installed\n");
  assert.match(printed[1], /^waiting for process \d+, which sets up this checkout too\nthere already\n$/);
  assert.equal(await readFile(join(folder, "log"), "utf8"), "in\nout\n");
});

test("a bundle over 332 kB gzip fails the build", async () => {
  const folder = await mkdtemp(join(scratch, "bundle-"));
  await writeFile(join(folder, "index.js"), randomBytes(300_000));
  assert.match(await checkSize(folder), /of 332000 bytes gzip/);
  await writeFile(join(folder, "semel_bg.wasm"), randomBytes(33_000));
  await assert.rejects(checkSize(folder), StepError);
  // For a crate of somebody else's, the limit is Cloudflare's.
  assert.match(await checkSize(folder, OWN_GZIP_BYTES_MAX), /of 3000000 bytes gzip/);
});

test("the error of a command that is missing or fails says so, with the advice or with its output", async () => {
  await assert.rejects(run("semel-no-such-command", [], { advice: "install it" }), (error) => {
    assert.match(error.message, /not found on PATH/);
    assert.equal(error.advice, "install it");
    return error instanceof StepError;
  });
  await assert.rejects(run("sh", ["-c", "echo why >&2; exit 3"]), /ended with 3\nwhy/);
});

test("a command that takes too long is killed, with all that it has started", async () => {
  const startedMs = performance.now();
  const error = await run("sh", ["-c", "sleep 60 & echo started $!; wait"], { timeoutMs: 1_000 }).catch((error) => error);
  assert.ok(performance.now() - startedMs < 30_000);
  const [, left] = /ended by SIGKILL\nstarted (\d+)$/.exec(error.message);
  await until(() => {
    try {
      process.kill(Number(left), 0);
      return false;
    } catch ({ code }) {
      return code === "ESRCH";
    }
  }, "what it had started is gone");
});

test("without a C compiler every command that builds says so, and what to install, before it does anything", async () => {
  const bin = join(scratch, "without-cc");
  await mkdir(bin);
  await symlink(process.execPath, join(bin, "node"));
  for (const [name, ...args] of [["start"], ["build"], ["worker", "examples/orders-rust"], ["deploy", "--dry-run"]]) {
    const running = run(process.execPath, [join(ROOT, `scripts/${name}.mjs`), ...args], { cwd: ROOT, env: { PATH: bin, SEMEL_PORT: "0" } });
    await assert.rejects(running, /this machine \.\.\. FAILED\n\ncc was not found on PATH\n\nWhat to do: Install a C compiler/, name);
  }
});

test("a crate compiles in a checkout whose path has spaces, and the wasm holds nothing of that path", async () => {
  const { folder: checkout } = await checkoutOf("a checkout -of mine");
  await mkdir(join(checkout, "src"));
  await writeFile(join(checkout, "Cargo.toml"), '[package]\nname = "own"\nversion = "0.0.0"\nedition = "2021"\n\n[lib]\ncrate-type = ["cdylib"]\n\n[features]\nmore = []\n\n[workspace]\n');
  await writeFile(join(checkout, "src/lib.rs"), '#[no_mangle]\npub extern "C" fn file() -> *const u8 {\n    file!().as_ptr()\n}\n');
  const { compileCrate } = await import(pathToFileURL(join(checkout, "scripts/setup/compile.mjs")).href);
  const { env } = await rustForWasm();
  const wasm = await compileCrate({ crate: "own", profile: "release", features: ["more"], rust: { env, target: join(checkout, "target") }, cwd: checkout, isLocked: false, hasSimd: true });
  assert.ok((await stat(wasm)).size > 0);
  assert.ok(!(await readFile(wasm)).includes("a checkout"));
});

test("npm run worker refuses a missing crate, an unknown option, and an output folder that has other files, which stay", async () => {
  const worker = (...args) => run(process.execPath, [join(ROOT, "scripts/worker.mjs"), ...args], { cwd: ROOT });
  await assert.rejects(worker(), /Which crate\?\n\nWhat to do: npm run worker -- FOLDER/);
  await assert.rejects(worker("nothing-here"), /There is no folder nothing-here/);
  await writeFile(join(scratch, "own.txt"), "mine");
  await assert.rejects(worker("examples/orders-rust", "--outdir", scratch), /has something else in it than a built Worker, and would be emptied\.\n\nWhat to do: /);
  assert.equal(await readFile(join(scratch, "own.txt"), "utf8"), "mine");
  await assert.rejects(worker("examples/orders-rust", "--out", "x"), /\nUnknown option '--out'[^\n]*\n\nWhat to do: npm run worker -- FOLDER/);
});

test("a module of a crate that imports a missing file is an error that names the file", async () => {
  const index = join(scratch, "index.js");
  await writeFile(index, 'import "./lines.js";\nimport { count } from "./lib/count.js";\n');
  const lines = join(ROOT, "worker/lines.js");
  await assert.rejects(imported(new Map([["index.js", index], ["lines.js", lines]])), /^Error: index\.js imports \.\/lib\/count\.js, which is neither beside the crate's Cargo\.toml nor in worker\/\.$/);
  await writeFile(index, 'import "./lines.js";\n');
  assert.deepEqual(await imported(new Map([["index.js", index], ["lines.js", lines]])), [index, lines]);
});

test("a browser loads at most 28,000 bytes brotli of the SDK: wasm and JavaScript, the service worker included", async () => {
  const { note, isWithin } = await sizeOf(SDK_PACKAGE);
  assert.ok(isWithin, note);
  const folder = await mkdtemp(join(scratch, "sdk-"));
  for (const [name, bytes] of [["semel.wasm", 20_000], ["semel.js", 5_000], ["index.js", 100], ["service-worker.js", 100], ["node.js", 30_000]]) {
    await writeFile(join(folder, name), randomBytes(bytes));
  }
  const small = await sizeOf(folder);
  assert.match(small.note, /^25,2\d\d of 28,000 bytes brotli \(wasm 20,\d\d\d, JS 5,2\d\d\)$/);
  await writeFile(join(folder, "semel.js"), randomBytes(10_000));
  assert.deepEqual([small.isWithin, (await sizeOf(folder)).isWithin], [true, false]);
});

test("a browser loads at most 32,600 bytes brotli more for sessions", async () => {
  const { note, isWithin } = await sizeOfSessions(SDK_PACKAGE);
  assert.ok(isWithin, note);
  assert.match(note, / of 32,600 bytes brotli /);
});

/** A machine with programs that answer with a version. `apt-get install` adds `installed` to them. */
function machine(programs, installed = {}) {
  const ran = [];
  const execute = async (command, args) => {
    ran.push([command, ...args].join(" "));
    if (command === "/bin/sh" && programs[args[2]]) return `/usr/bin/${args[2]}\n`;
    const version = programs[command.split("/").at(-1)];
    if (args[0] === "--version" && version) return version;
    if (command === "apt-get") {
      if (args.includes("install")) Object.assign(programs, installed);
      return "";
    }
    throw new StepError(`${command} was not found on PATH`);
  };
  return { ran, execute };
}

test("Chromium is found on PATH, and nothing is installed", async () => {
  const { ran, execute } = machine({ chromium: "Chromium 156.0.1" });
  const found = await findBrowser({ env: { PATH: "/usr/bin" }, isRoot: true, execute });
  assert.deepEqual(found, { chromium: "/usr/bin/chromium", note: "Chromium 156.0.1" });
  assert.ok(!ran.some((command) => command.startsWith("apt-get")));
});

test("without Chromium, root installs it by apt-get, and anybody else is told the command", async () => {
  const installed = { chromium: "Chromium 156.0.1" };
  const root = machine({ "apt-get": "apt 2" }, installed);
  const found = await findBrowser({ env: { PATH: "/usr/bin" }, isRoot: true, execute: root.execute });
  assert.deepEqual(found, { chromium: "/usr/bin/chromium", note: "Chromium 156.0.1, installed" });
  assert.ok(root.ran.some((command) => /^apt-get .*install .*chromium$/.test(command)), root.ran.join("\n"));

  const somebody = machine({ "apt-get": "apt 2" }, installed);
  await assert.rejects(findBrowser({ env: { PATH: "/usr/bin" }, isRoot: false, execute: somebody.execute }), (error) => {
    assert.match(error.advice, /sudo apt-get install -y --no-install-recommends chromium`/);
    return error instanceof StepError;
  });
  assert.ok(!somebody.ran.some((command) => command.startsWith("apt-get")));
});

test("a browser that SEMEL_CHROMIUM names and that is missing is an error, even if there is another on PATH", async () => {
  const { ran, execute } = machine({ "apt-get": "apt 2", chromium: "Chromium 156.0.1" });
  const env = { PATH: "/usr/bin", SEMEL_CHROMIUM: "other" };
  await assert.rejects(findBrowser({ env, isRoot: true, execute }), /SEMEL_CHROMIUM=other can't be found/);
  assert.ok(!ran.some((command) => command.startsWith("apt-get")));
});

test("without Firefox, root installs it by apt-get, and where that can't be there is none, which is no error", async () => {
  const env = { PATH: "/usr/bin" };
  const installed = { "firefox-esr": "Mozilla Firefox 153.7.0esr" };
  const root = machine({ "apt-get": "apt 2" }, installed);
  assert.equal(await haveFirefox({ env, isRoot: true, execute: root.execute }), "firefox-esr");
  assert.ok(root.ran.some((command) => /^apt-get .*install .*firefox-esr$/.test(command)), root.ran.join("\n"));
  const offline = machine({ "apt-get": "apt 2" });
  const fails = (command, ...rest) => (command === "apt-get" ? Promise.reject(new StepError("no network")) : offline.execute(command, ...rest));
  assert.equal(await haveFirefox({ env, isRoot: true, execute: fails }), undefined);
  for (const [isRoot, programs] of [[false, { "apt-get": "apt 2" }], [true, {}], [true, { "apt-get": "apt 2", firefox: "Mozilla Firefox 160.0" }]]) {
    const { ran, execute } = machine(programs, installed);
    assert.equal(await haveFirefox({ env, isRoot, execute }), programs.firefox && "firefox");
    assert.ok(!ran.some((command) => command.startsWith("apt-get")), ran.join("\n"));
  }
});

test("without WebKit or a part of its driver, root installs all of it by apt-get, and for anybody else there is none", async () => {
  const env = { PATH: "/usr/bin" };
  const all = { WebKitWebDriver: "yes", Xvfb: "yes", gjs: "2.50\n" };
  const executeOn = ({ execute }, programs) => async (command, args, ...rest) => (command === "gjs" && programs.gjs ? programs.gjs : execute(command, args, ...rest));
  for (const missing of Object.keys(all)) {
    const programs = { ...all, "apt-get": "apt 2" };
    delete programs[missing];
    const root = machine(programs, all);
    assert.equal(await findWebKit({ env, execute: executeOn(root, programs) }), undefined, missing);
    assert.equal(await haveWebKit({ env, isRoot: false, execute: executeOn(root, programs) }), undefined, missing);
    assert.ok(!root.ran.some((command) => command.startsWith("apt-get")), root.ran.join("\n"));
    assert.equal(await haveWebKit({ env, isRoot: true, execute: executeOn(root, programs) }), "2.50", missing);
    assert.ok(root.ran.some((command) => /^apt-get .*install .* webkit2gtk-driver gir1.2-webkit2-4.1 gjs xvfb$/.test(command)), root.ran.join("\n"));
  }
  const here = machine({ ...all, "apt-get": "apt 2" });
  assert.equal(await haveWebKit({ env, isRoot: true, execute: executeOn(here, all) }), "2.50");
  assert.ok(!here.ran.some((command) => command.startsWith("apt-get")), here.ran.join("\n"));
});

test("Firefox is what SEMEL_FIREFOX names, else the first that runs, else none, and the search installs nothing", async () => {
  const { ran, execute } = machine({ "firefox-esr": "Mozilla Firefox 153.7.0esr", "firefox-own": "Mozilla Firefox 160.0", firefox: "install me from the store", "apt-get": "apt 2" });
  assert.equal(await findFirefox({ env: {}, execute }), "firefox-esr");
  assert.equal(await findFirefox({ env: { SEMEL_FIREFOX: "/opt/firefox-own" }, execute }), "/opt/firefox-own");
  await assert.rejects(findFirefox({ env: { SEMEL_FIREFOX: "/opt/none" }, execute }), /SEMEL_FIREFOX: \/opt\/none is no Firefox/);
  assert.equal(await findFirefox({ env: {}, execute: machine({}).execute }), undefined);
  assert.ok(ran.every((command) => command.endsWith("--version")), ran.join());
});
