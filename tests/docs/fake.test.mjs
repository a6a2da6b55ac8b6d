// What the SDK's README gives to copy: the `fetch` for tests, by which a change is answered, once; and the words of what waits.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Semel } from "../../sdk/npm/node.js";

const AsyncFunction = (async () => {}).constructor;

test("the fetch for tests answers a change, and is asked for it once", async () => {
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

test("what waits is shown in the page's own words, until it is answered", async () => {
  const readme = await readFile(new URL("../../sdk/npm/README.md", import.meta.url), "utf8");
  const [, code] = /<!-- words -->\n```js\n([\s\S]*?)```/.exec(readme) ?? [];
  assert.ok(code, "the README has it");
  let answer;
  const answered = new Promise((resolve) => (answer = resolve));
  const headers = () => ({ "semel-status": "executed", "semel-now": String(Date.now()), "semel-key": '"orders"' });
  const semel = await Semel.open({ url: "https://worker.test", durability: "memory", fetch: async () => (await answered, new Response("{}", { headers: headers() })) });
  const rows = new Map();
  const localStorage = { getItem: (name) => rows.get(name) ?? null, setItem: (name, text) => void rows.set(name, text) };
  const shown = [];
  const order = await new AsyncFunction("semel", "localStorage", "show", `${code}; return order;`)(semel, localStorage, (waiting) => shown.push(waiting));
  const until = async (expected) => {
    for (const endMs = Date.now() + 5_000; JSON.stringify(shown.at(-1)) !== JSON.stringify(expected); ) {
      assert.ok(Date.now() < endMs, JSON.stringify(shown));
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  const made = order("2 teas", { item: "tea", quantity: 2 });
  await until([["2 teas", "sending"]]);
  answer();
  assert.equal((await made).status, 200);
  await until([]);
  await semel.close();
});
