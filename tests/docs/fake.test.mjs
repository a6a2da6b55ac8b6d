// The `fetch` that the SDK's README gives for tests: a change is answered by it, once.

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
