// Tests that the example of the health check in `PROTOCOL.md` has what the code answers.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";

const read = (path) => readFile(join(ROOT, path), "utf8");

test("the example of health in PROTOCOL.md has the members of the code, in their order, and its versions", async () => {
  const [, text] = /### Health\n[\s\S]*?\n\n(\{"status"[\s\S]*?)\n```/.exec(await read("PROTOCOL.md"));
  const shown = JSON.parse(text);
  const [, code] = /\nfn health\(([\s\S]*?)\n\}/.exec(await read("core/src/server/edge/router.rs"));
  const [, versions, limits] = code.split(/let (?:versions|limits|body) =/);
  const names = (part) => [...part.matchAll(/\.with\("(\w+)"/g)].map(([, name]) => name);
  assert.deepEqual(Object.keys(shown.versions), names(versions));
  assert.deepEqual(Object.keys(shown.limits), names(limits));
  const [, schema] = /SCHEMA_VERSION: i64 = (\d+);/.exec(await read("core/src/server/storage/schema.rs"));
  assert.equal(shown.versions.schema, Number(schema));
  const { version } = JSON.parse(await read("sdk/npm/package.json"));
  assert.equal(shown.versions.semel, version);
});
