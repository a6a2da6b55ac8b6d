// The examples, run by the commands of examples/README.md, with the packed SDK, against workerd through a proxy.
//
// Invariant: they run in a folder that is laid out like a checkout. Only the worker's address and fixed ports are replaced.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { cp, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { stripVTControlCharacters } from "node:util";
import { build } from "esbuild";
import { RUNTIMES } from "../../scripts/setup/packages.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { SDK_PACKAGE } from "../../scripts/setup/sdk.mjs";
import { browse } from "./browser.mjs";
import { madeCheckout } from "./examples.mjs";
import { acknowledged, startLossy, until } from "./lossy.mjs";
import { serve } from "./server.mjs";

const WORKER = "http://127.0.0.1:8787";
const SHOWN = { "examples/browser/index.html": "html", "examples/react/Deposit.jsx": "jsx", "examples/node/deposit.mjs": "js" };
/** The change runs, but its answer is lost. */
const UNHEARD = { loseAnswers: 1, spare: ({ method }) => method !== "POST" };
/** The change never arrives. */
const UNSENT = { loseRequests: 1, spare: ({ method }) => method !== "POST" };
/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 60_000 };
/** How long installing and bundling an example may take: usually some seconds, but many more if the machine is busy or its disk cold. */
const BUILT_MS_MAX = 60_000;

const readme = await readFile(join(ROOT, "README.md"), "utf8");
const server = await serve(after, "ledger");
/** Serves nobody, like a worker that is not configured yet. */
const closed = await serve(after, "ledger", { SEMEL_OPEN: "false", SEMEL_ORIGINS: "*" });
const browser = await browse(after);
const { checkout, endings, layOut, replace, commands, begin, run } = await madeCheckout(after);
/**
 * `modules`: where the packages of the example are installed. An example with a form accepts the next deposit at once; the other turns its button off
 * meanwhile.
 */
const pages = {
  browser: { account: "carol", source: "index.html" },
  react: { account: "dave", source: "Deposit.jsx", isForm: true, modules: ROOT },
  svelte: { account: "erin", source: "main.js", isForm: true, modules: RUNTIMES },
  vue: { account: "frank", source: "main.js", isForm: true, modules: RUNTIMES },
};
let packed;

before(async () => {
  await layOut(pages);
  packed = await run(commands("pack"));
  for (const [name, page] of Object.entries(pages)) Object.assign(page, await openable(name, page));
});

/** Serves an example that sends to `page.worker`, which a test may change, through a proxy of its own. */
async function openable(name, page) {
  page.worker = server;
  const proxy = await startLossy({ target: () => page.worker.url, seed: 23 });
  endings.push(() => proxy.close());
  await replace(join(checkout, "examples", name, page.source), WORKER, proxy.url);
  const serving = begin(commands(name));
  // Where the environment names a CI, vite prints in colours, even into a pipe.
  const address = () => /Local: +(http\S+)\s/.exec(stripVTControlCharacters(serving.output))?.[1];
  const served = until(address, `${name} is served`, BUILT_MS_MAX).catch(({ message }) => assert.fail(`${message}\n${serving.output}`));
  await Promise.race([served, serving.ended]);
  assert.ok(address(), serving.output);
  return { proxy, url: address() };
}

test("the README shows the examples as they are", async () => {
  for (const [path, language] of Object.entries(SHOWN)) {
    const text = await readFile(join(ROOT, path), "utf8");
    assert.ok(readme.includes(`<!-- ${path} -->\n\`\`\`${language}\n${text}\`\`\`\n`), `README.md shows ${path} in full`);
    assert.ok(text.includes(WORKER), `${path} asks ${WORKER}`);
  }
});

test("the package holds its entries, modules, types, command line, workers, inspector and licenses, and nothing else", async () => {
  assert.equal(packed, "semel-0.1.0.tgz\n");
  const files = await readdir(join(checkout, "examples/browser/node_modules/semel"), { recursive: true });
  const cjs = ["cjs", "cjs/late.cjs", "cjs/semel.cjs", "cjs/session-node.cjs", "cjs/session.cjs", ...["conformance", "file", "index"].flatMap((name) => [`cjs/${name}.cjs`, `cjs/${name}.d.cts`])];
  const file = ["disk", "errors", "frames", "life", "lock", "log", "owners", "store"].map((name) => `file/${name}.js`);
  const inline = ["index.cjs", "index.d.cts", "index.d.ts", "index.js", "session-wasm.cjs", "session-wasm.js", "session.cjs", "session.js", "wasm.cjs", "wasm.js"].map((name) => `inline/${name}`);
  const top = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "conformance.d.ts", "conformance.js", "file.d.ts", "file.js", "index.d.ts", "index.js", "late.js", "node.js", "package.json", "semel.js", "semel.wasm", "service-worker.d.ts", "service-worker.js", "session-browser.js", "session-node.js", "session-workerd.js", "session.js", "session.wasm", "upstream-queue.d.ts", "upstream.d.ts", "worker.d.ts", "workerd.js"];
  const worker = ["answers.js", "batches.js", "bodies.js", "chores.js", "effects.js", "garbage.js", "gathering.js", "host.js", "index.js", "json.js", "lines.js", "module.js", "objects.js", "queue.js", "registry.js", "requests.js", "router.js", "script.js", "semel.js", "semel_bg.wasm", "signatures.js", "sockets.js", "storage.js", "turns.js"].map((name) => `worker/${name}`);
  const upstream = ["batches.js", "bodies.js", "chores.js", "garbage.js", "host.js", "index.js", "json.js", "lines.js", "module.js", "objects.js", "origin.js", "queue.js", "registry.js", "remote.js", "router.js", "semel.js", "semel_bg.wasm", "settings.js", "signatures.js", "sockets.js", "storage.js", "turns.js"].map((name) => `upstream/${name}`);
  const inspector = ["_headers", "inspector", "inspector.html", "inspector/icon.svg", "inspector/inspector-HASH.js", "inspector/inspector-page-HASH.css"].map((name) => `inspector/${name}`);
  const named = files.map((name) => name.replace(/^(inspector\/.*)-[A-Z0-9]{8}\./, "$1-HASH."));
  assert.deepEqual(named.sort(), [...top, "bin", "bin/LICENSES.txt", "bin/semel.cjs", ...cjs, "file", ...file, "inline", ...inline, "inspector", ...inspector, "upstream", ...upstream, "worker", ...worker].sort());
});

test("the Node script prints what the README says, though answers are lost", LIMIT, async (t) => {
  const [, expected] = /<!-- examples\/node prints -->\n```\n([\s\S]*?)```/.exec(readme) ?? [];
  assert.ok(expected, "the README has what it prints");
  const proxy = await startLossy({ target: () => server.url, seed: 23, ...UNHEARD });
  t.after(() => proxy.close());
  await replace(join(checkout, "examples/node/deposit.mjs"), WORKER, proxy.url);
  const ran = begin(commands("node"));
  await until(() => proxy.counts.lostAnswers > 0 || ran.child.exitCode !== null, "an answer is lost");
  proxy.calm();
  assert.equal(await ran.ended, 0, ran.output);
  assert.ok(ran.stdout.endsWith(`\n${expected}`), ran.output);
  assert.deepEqual(await server.account("bob"), { id: "bob", balance: 5, entries: 1 });
  assert.equal(proxy.changes.size, 1);
});

test("after a Node script is killed in mid-request, the next run gets its answer and makes a deposit of its own", LIMIT, async (t) => {
  const proxy = await startLossy({ target: () => server.url, seed: 24, ...UNHEARD });
  t.after(() => proxy.close());
  const before = await server.account("bob");
  const source = await readFile(join(ROOT, "examples/node/deposit.mjs"), "utf8");
  await writeFile(join(checkout, "examples/node/deposit.mjs"), source.replace(WORKER, proxy.url));
  const killed = begin(commands("node"));
  await until(() => proxy.counts.lostAnswers > 0 || killed.child.exitCode !== null, "an answer is lost");
  process.kill(-killed.child.pid, "SIGKILL");
  await killed.ended;
  proxy.calm();
  const printed = await run(commands("node"));
  assert.ok(printed.includes(`\nOf an earlier run: POST ${proxy.url}/accounts/bob/deposit 200\n`), printed);
  const { balance, entries } = await server.account("bob");
  assert.deepEqual([balance - before.balance, entries - before.entries, proxy.changes.size], [10, 2, 2]);
});

/** Opens the page of an example and waits until it is ready. `made()` counts from here. */
async function open(t, { proxy, url, account, isForm }, path = "") {
  const [before, changes] = [await server.account(account), proxy.changes.size];
  const tab = await browser.tab(url + path);
  t.after(async () => {
    proxy.calm();
    await tab.close();
  });
  const button = tab.getByRole("button");
  const amount = tab.getByRole("spinbutton");
  const page = {
    tab,
    button,
    /** Deposits 5, or `much` if there is a form, by one click or two. */
    async deposit(much = 5, clicks = 1) {
      if (isForm) await amount.fill(String(much));
      await button.click({ clickCount: clicks });
    },
    waits: (many) => tab.getByText(`${many} waiting to be sent`, { exact: true }).waitFor(),
    status: () => tab.getByRole("status").last().textContent(),
    says: (text) => until(async () => (await page.status()).startsWith(text), text),
    isReady: () => until(() => button.isEnabled(), "the button is on"),
    shows: (balance) => until(async () => (await tab.locator("output").textContent()) === String(balance), `the balance ${balance}`),
    before: before.balance,
    complaints: () => browser.complaints.filter(({ page }) => page === tab).map(({ text }) => text),
    /** How many deposits were made since the page was opened, and under how many ids. */
    async made() {
      const { entries } = await server.account(account);
      return { deposits: entries - before.entries, ids: proxy.changes.size - changes };
    },
  };
  await page.isReady();
  await page.shows(before.balance);
  return page;
}

/** The id of the last deposit that was sent. */
const lastId = (proxy) => [...proxy.changes.keys()].at(-1);

for (const [name, example] of Object.entries(pages)) {
  test(`${name}: a double click is one deposit, and another click another one`, LIMIT, async (t) => {
    const page = await open(t, example);
    await page.deposit(5, 2);
    await page.shows(page.before + 5);
    assert.equal(await page.status(), "The deposit was made.");
    assert.deepEqual(await page.made(), { deposits: 1, ids: 1 });
    await page.deposit();
    await page.shows(page.before + 10);
    assert.deepEqual(await page.made(), { deposits: 2, ids: 2 });
    assert.deepEqual([page.complaints(), browser.errors], [[], []]);
  });

  test(`${name}: a page that is reloaded in mid-request recovers the answer to its one deposit`, LIMIT, async (t) => {
    const { proxy, account, isForm } = example;
    const page = await open(t, example);
    Object.assign(proxy.settings, UNHEARD);
    await page.deposit();
    await until(async () => (await page.made()).deposits === 1, "it ran, and nobody knows");
    if (isForm) await page.waits("1 change");
    else assert.deepEqual([await page.status(), await page.button.isEnabled()], ["The deposit is under way.", false]);
    await page.tab.reload();
    if (isForm) await page.waits("1 change");
    else {
      await page.says("An earlier deposit is under way.");
      assert.equal(await page.button.isEnabled(), false);
    }
    proxy.calm();
    await page.says("An earlier deposit was made.");
    await page.isReady();
    await page.shows(page.before + 5);
    // An acknowledged deposit is not reported again after a reload.
    await acknowledged(server, [[lastId(proxy), proxy.changes.get(lastId(proxy))]]);
    await page.tab.reload();
    await page.isReady();
    assert.equal(await page.status(), "");
    assert.deepEqual(await page.made(), { deposits: 1, ids: 1 });
    assert.deepEqual(page.complaints().filter((text) => !text.includes("net::ERR_")), []);
    assert.deepEqual(browser.errors, []);
  });

  test(`${name}: after a cancellation the deposit was not made, and the page says so`, LIMIT, async (t) => {
    const { proxy, account } = example;
    const page = await open(t, example);
    Object.assign(proxy.settings, UNSENT);
    await page.deposit();
    await until(async () => (await page.made()).ids === 1, "it is sent");
    const cancel = await server.send("POST", `/semel/v1/keys/accounts%2F${account}/cancel`, { id: randomUUID(), body: JSON.stringify({ id: lastId(proxy) }) });
    assert.equal(cancel.json.state, "cancelled");
    proxy.calm();
    await page.says("The deposit was not made. You can try again. (cancelled: ");
    await page.isReady();
    assert.deepEqual(await page.made(), { deposits: 0, ids: 1 });
  });

  test(`${name}: if the outcome is gone, the page says that the deposit was made and its answer is lost`, LIMIT, async (t) => {
    const { proxy, account } = example;
    const page = await open(t, example);
    Object.assign(proxy.settings, UNHEARD);
    await page.deposit();
    await until(async () => (await page.made()).deposits === 1, "it ran, and nobody knows");
    await server.send("GET", `/accounts/${account}`, { ack: `"${lastId(proxy)}"` });
    proxy.calm();
    await page.says("The deposit was made, but its answer is lost. (acknowledged: ");
    await page.shows(page.before + 5);
    assert.deepEqual(await page.made(), { deposits: 1, ids: 1 });
  });

  test(`${name}: the page says why a deposit was refused`, LIMIT, async (t) => {
    const { proxy, account } = example;
    const page = await open(t, example);
    await server.deposit(account, Number.MAX_SAFE_INTEGER - page.before);
    await page.deposit();
    await page.says('The deposit was refused: {"error":"balance-too-large"}');
    await page.isReady();
    const { balance } = await server.account(account);
    await server.send("POST", `/accounts/${account}/withdraw`, { id: randomUUID(), body: JSON.stringify({ amount: balance - page.before }) });
  });

  test(`${name}: a deposit waits for a Worker that serves nobody, and is made after a reload once it serves`, LIMIT, async (t) => {
    const page = await open(t, example);
    example.worker = closed;
    t.after(() => (example.worker = server));
    await page.deposit();
    await page.says("The deposit waits. (unauthorized: ");
    example.worker = server;
    await page.tab.reload();
    await page.says("An earlier deposit was made.");
    assert.deepEqual(await page.made(), { deposits: 1, ids: 1 });
  });
}

test("browser: two tabs both say what became of a deposit that a reload of one left behind", LIMIT, async (t) => {
  const { proxy, url } = pages.browser;
  const page = await open(t, pages.browser);
  Object.assign(proxy.settings, UNHEARD);
  await page.deposit();
  await until(async () => (await page.made()).deposits === 1, "it ran, and nobody knows");
  const other = await browser.tab(url);
  t.after(() => other.close());
  const tabs = [page.tab, other].map((tab) => ({ status: tab.getByRole("status").last(), button: tab.getByRole("button") }));
  const say = async (text) => {
    for (const { status } of tabs) await until(async () => (await status.textContent()) === text, text);
  };
  await until(async () => (await tabs[1].status.textContent()) === "An earlier deposit is under way.", "the other tab knows of it");
  await page.tab.reload();
  await say("An earlier deposit is under way.");
  for (const { button } of tabs) assert.ok(await button.isDisabled(), "another click would be another deposit");
  proxy.calm();
  await say("An earlier deposit was made.");
  for (const { button } of tabs) assert.ok(await button.isEnabled());
  assert.deepEqual(await page.made(), { deposits: 1, ids: 1 });
});

for (const [name, example] of Object.entries(pages).filter(([, { isForm }]) => isForm)) {
  test(`${name}: deposits made offline are counted, and each is made once when the network is back`, LIMIT, async (t) => {
    const page = await open(t, example);
    t.after(() => browser.offline(false));
    await page.waits("No changes");
    await browser.offline(true);
    for (const [much, waiting] of [[1, "1 change"], [20, "2 changes"], [300, "3 changes"]]) {
      await page.deposit(much);
      await page.waits(waiting);
    }
    assert.deepEqual(await page.made(), { deposits: 0, ids: 0 });
    assert.equal(await page.status(), "");
    await browser.offline(false);
    await page.waits("No changes");
    await page.shows(page.before + 321);
    assert.equal(await page.status(), "The deposit was made.");
    assert.deepEqual(await page.made(), { deposits: 3, ids: 3 });
    assert.deepEqual([page.complaints(), browser.errors], [[], []]);
  });
}

test("browser: the example works under the Content-Security-Policy that examples/README.md asks for", LIMIT, async (t) => {
  const { proxy } = pages.browser;
  const policy = `default-src 'self'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; connect-src 'self' ${proxy.url}`;
  const folder = join(checkout, "examples/browser");
  const html = await readFile(join(folder, "index.html"), "utf8");
  await writeFile(join(folder, "policy.html"), html.replace("<head>", `<head><meta http-equiv="Content-Security-Policy" content="${policy}" />`));
  const page = await open(t, pages.browser, "policy.html");
  await page.deposit();
  await page.says("The deposit was made.");
  assert.deepEqual([page.complaints(), browser.errors], [[], []]);
});

test("react: under StrictMode the module is loaded once and one outbox is opened", LIMIT, async (t) => {
  const { tab } = await open(t, pages.react);
  const modules = await tab.evaluate(() => performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("/semel.wasm")).length);
  const outboxes = await tab.evaluate(async () => (await navigator.locks.query()).held.length);
  assert.deepEqual([modules, outboxes], [1, 1]);
});

test("react: a component that is mounted again shows the answer that came meanwhile", LIMIT, async (t) => {
  const { proxy } = pages.react;
  const folder = join(checkout, "examples/react/again");
  const contents = `
    import { StrictMode } from "react";
    import { createRoot } from "react-dom/client";
    import { Deposit } from "./Deposit.jsx";
    const root = createRoot(document.getElementById("root"));
    window.mount = (isMounted) => root.render(<StrictMode>{isMounted && <Deposit />}</StrictMode>);
    window.mount(true);`;
  const stdin = { contents, loader: "jsx", resolveDir: join(folder, "..") };
  await build({ stdin, bundle: true, format: "esm", jsx: "automatic", outfile: join(folder, "dist/main.js"), logLevel: "warning" });
  await cp(join(SDK_PACKAGE, "semel.wasm"), join(folder, "dist/semel.wasm"));
  await cp(join(folder, "../index.html"), join(folder, "index.html"));

  const page = await open(t, pages.react, "again/");
  Object.assign(proxy.settings, UNHEARD);
  await page.deposit();
  await until(async () => (await page.made()).deposits === 1, "it ran, and nobody knows");
  await page.tab.evaluate(() => mount(false));
  assert.equal(await page.button.count(), 0);
  proxy.calm();
  await until(() => proxy.changes.get(lastId(proxy)).outcome, "it has its answer");
  await page.tab.evaluate(() => mount(true));
  await page.says("The deposit was made.");
  await page.isReady();
  await page.shows(page.before + 5);
  assert.deepEqual(await page.made(), { deposits: 1, ids: 1 });
});
