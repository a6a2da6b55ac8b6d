// A minute of chaos, in which everything must hold and all memory must be weighed. With wrong arguments, the run does not begin.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";

/** The run's own limits end it long before that, on any machine. */
const LIMIT_MS = 14 * 60_000;

function chaos(args) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ["scripts/chaos.mjs", ...args], { cwd: ROOT, stdio: ["ignore", "pipe", "pipe"], timeout: LIMIT_MS });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (output += chunk));
    child.on("close", (code) => resolve({ code, output }));
  });
}

test("in a minute of chaos every fault occurs, every promise holds, and all memory is weighed", { timeout: LIMIT_MS + 30_000 }, async (t) => {
  const { code, output } = await chaos(["--minutes", "1", "--seed", "20"]);
  assert.equal(code, 0, output);
  assert.match(output, /\nchaos: all holds, seed 20\n$/);
  const figures = JSON.parse(/^figures (.*)$/m.exec(output)[1]);
  t.diagnostic(JSON.stringify(figures));
  // The run itself checks that each fault occurred and that each client got through.
  const { answered, files, takeOvers } = figures;
  assert.ok(files > 0, "there are files");
  assert.ok(takeOvers > 20, `sessions were taken over ${takeOvers} times`);
  const weighed = ["page", "node-0", "node-1", "node-solo-0", "workerd"];
  for (const name of weighed) assert.match(output, new RegExp(`^memory of ${name}, in kB: \\d+`, "m"));
  const all = Object.values(answered).reduce((sum, count) => sum + count, 0);
  assert.ok(all >= 100, `${all} deposits got through`);
});

for (const [why, args] of Object.entries({
  "an unknown flag": ["--hours", "1"],
  "a bare word": ["1"],
  "a flag without its value": ["--minutes"],
  "zero minutes": ["--minutes", "0"],
  "negative minutes": ["--minutes=-1"],
  "more than a day": ["--minutes", "1441"],
  "minutes that are not plain digits": ["--minutes", "1e1"],
  "a seed that is not whole": ["--seed", "1.5"],
  "a seed that is too large": ["--seed", "4294967296"],
  "a repeated flag": ["--seed", "1", "--seed", "2"],
})) {
  test(`the run does not begin with ${why}`, async () => {
    const { code, output } = await chaos(args);
    assert.equal(code, 2, output);
    assert.match(output, /npm run chaos -- \[--minutes M\] \[--seed S\]/);
  });
}
