// Tests code that the SDK's README gives to copy: the `fetch` for tests, which answers a change once, and the page's own words for what waits.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileStore } from "../../sdk/npm/file.js";
import { Semel } from "../../sdk/npm/node.js";

const AsyncFunction = (async () => {}).constructor;

test("the README's fetch for tests answers a change, and the SDK sends that change to it once", async () => {
  const readme = await readFile(new URL("../../sdk/npm/README.md", import.meta.url), "utf8");
  const [, code] = /<!-- fake -->\n```js\n([\s\S]*?)```/.exec(readme) ?? [];
  assert.ok(code, "the README has it");
  const asked = [];
  const Counted = { open: (options) => Semel.open({ ...options, fetch: (url, init) => (asked.push(`${init.method ?? "GET"} ${new URL(url).pathname}`), options.fetch(url, init)) }) };
  const [semel, answer] = await new AsyncFunction("Semel", `${code}; return [semel, answer];`)(Counted);
  assert.deepEqual([answer.status, await answer.json()], [200, { ok: true }]);
  await semel.close();
  assert.deepEqual(asked.filter((each) => each === "POST /orders"), ["POST /orders"]);
});

/** Runs the README's code for a page: returns `order`, `end`, and `shows`, which waits until the page shows what is expected. */
async function worded(semel, rows) {
  const readme = await readFile(new URL("../../sdk/npm/README.md", import.meta.url), "utf8");
  const [, code] = /<!-- words -->\n```js\n([\s\S]*?)```/.exec(readme) ?? [];
  assert.ok(code, "the README has it");
  const localStorage = { getItem: (name) => rows.get(name) ?? null, setItem: (name, text) => void rows.set(name, text) };
  const shown = [];
  const page = await new AsyncFunction("semel", "localStorage", "show", `${code}; return { order, end: () => (stop(), clearTimeout(again)) };`)(semel, localStorage, (waiting) => shown.push(waiting));
  const shows = async (expected) => {
    for (const endMs = Date.now() + 5_000; JSON.stringify(shown.at(-1)) !== JSON.stringify(expected); ) {
      assert.ok(Date.now() < endMs, JSON.stringify(shown));
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  return { ...page, shows };
}

/** A Worker that answers no change until it is told to. */
function silent() {
  let answer;
  const answered = new Promise((resolve) => (answer = resolve));
  const headers = () => ({ "semel-status": "executed", "semel-now": String(Date.now()), "semel-key": '"orders"' });
  return { answer, options: { url: "https://worker.test", fetch: async (url, { method }) => (method === "POST" && (await answered), new Response("{}", { headers: headers() })) } };
}

test("the README's code shows a waiting change in the page's own words until it is answered", async () => {
  const { answer, options } = silent();
  const semel = await Semel.open({ ...options, durability: "memory" });
  const page = await worded(semel, new Map());
  const made = page.order("2 teas", { item: "tea", quantity: 2 });
  await page.shows([["2 teas", "sending"]]);
  answer();
  assert.equal((await made).status, 200);
  await page.shows([]);
  page.end();
  await semel.close();
});

test("the README's code also shows a change of another tab in words, until that change is answered", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "semel-words-"));
  t.after(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }));
  const { answer, options } = silent();
  const [words, stores] = [new Map(), [fileStore(folder), fileStore(folder)]];
  const [theirs, ours] = [await Semel.open({ ...options, store: stores[0] }), await Semel.open({ ...options, store: stores[1] })];
  // Once the attempt leaves, the order is stored, so every tab can see it.
  const sent = new Promise((resolve) => theirs.addEventListener("attempt", ({ detail }) => detail.method === "POST" && resolve()));
  const other = await worded(theirs, words);
  const made = other.order("2 teas", { item: "tea", quantity: 2 });
  await sent;
  const page = await worded(ours, words);
  await page.shows([["2 teas", "elsewhere"]]);
  answer();
  assert.equal((await made).status, 200);
  await page.shows([]);
  for (const { end } of [other, page]) end();
  for (const semel of [theirs, ours]) await semel.close();
  for (const store of stores) await store.close();
});
