// Tests that the properties, tests and rules that `docs/guarantees.md` names exist, and that it leaves out no rule.

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";

const read = (path) => readFile(join(ROOT, path), "utf8");
const namesIn = (text) => [...text.matchAll(/`([^`]+)`/g)].map(([, name]) => name);

/** The promises, each a heading: the names in each of its three lines. */
async function promises() {
  const parts = (await read("docs/guarantees.md")).split(/^##+ /m).filter((part) => part.includes("\n- Model: "));
  return parts.map((part) => {
    const [properties, tests, rules] = ["Model", "Tests", "Rules"].map((of) => namesIn(new RegExp(`^- ${of}: (.+)$`, "m").exec(part)?.[1] ?? ""));
    return { properties, tests, rules };
  });
}

/** The names of the SDK's tests: those with the SDK alone, and those with the server. */
async function sdkTests() {
  const files = (await readdir(join(ROOT, "tests/sdk"))).filter((name) => name.endsWith(".test.mjs")).map((name) => join("tests/sdk", name));
  const texts = await Promise.all([...files, "tests/e2e/sdk-node.test.mjs"].map(read));
  return texts.flatMap((text) => [...text.matchAll(/^test\("(.+?)", /gm)].map(([, name]) => name));
}

/** All Rust code below some folders, as one text. */
async function rust(folders) {
  const texts = [];
  for (const folder of folders) {
    for (const entry of await readdir(join(ROOT, folder), { recursive: true })) if (entry.endsWith(".rs")) texts.push(await read(join(folder, entry)));
  }
  return texts.join("\n");
}

/** The names of the rules, as the source lists them. */
const rules = async () => [...(await read("core/src/rules.rs")).matchAll(/^ {4}[A-Z]\w+ = "([a-z-]+)",$/gm)].map(([, name]) => name);

test("each promise names one property of the model, tests and rules, and all of them exist", async () => {
  const all = await promises();
  assert.equal(all.length, 38);
  const properties = (await read("tests/model/src/properties.rs")).replaceAll('\\"', '"');
  const tests = await rust(["core/src", "tests/engine/tests"]);
  const known = new Set(await rules());
  for (const promise of all) {
    assert.ok(promise.properties.length === 1 && promise.tests.length > 0 && promise.rules.length > 0, JSON.stringify(promise));
    for (const name of promise.properties) assert.ok(properties.includes(`= "${name}"`), name);
    for (const name of promise.tests) assert.match(tests, new RegExp(`#\\[test\\]\\n\\s*fn ${name}\\(\\)`), name);
    for (const name of promise.rules) assert.ok(known.has(name), name);
  }
});

test("every test that docs/guarantees.md names exists", async () => {
  const names = new Set(namesIn((await read("docs/guarantees.md")).replaceAll("\n", " ")));
  const native = await rust(["core/src", "tests/engine/tests"]);
  const inRust = [...names].filter((name) => /^[a-z0-9]+(_[a-z0-9]+){2,}$/.test(name));
  assert.ok(inRust.length >= 200, String(inRust.length));
  assert.deepEqual(inRust.filter((name) => !native.includes(`fn ${name}()`)), []);
  const properties = (await read("tests/model/src/properties.rs")).replaceAll('\\"', '"');
  const files = (await Promise.all(["tests/sdk", "tests/e2e"].map(async (folder) => (await readdir(join(ROOT, folder))).map((name) => join(folder, name))))).flat();
  const texts = (await Promise.all(files.filter((name) => name.endsWith(".test.mjs")).map(read))).join("\n");
  const others = [...names].filter((name) => / .* .* /.test(name) && !properties.includes(`= "${name}"`));
  assert.ok(others.length >= 20, String(others.length));
  assert.deepEqual(others.filter((name) => !texts.includes(`test("${name}"`)), []);
});

test("docs/guarantees.md names every rule, and both the model and the simulator have a check that switches it off", async () => {
  const [names, all, seeds] = [await rules(), await promises(), await read("tests/sim/tests/mutants.rs")];
  const document = await read("docs/guarantees.md");
  const inLists = ["Batches and sockets", "Effects that leave", "Sessions of the client"].flatMap((title) => namesIn(document.split(`\n## ${title}\n`)[1].split("\n## ")[0]));
  const named = new Set([...all.flatMap((promise) => promise.rules), ...inLists]);
  assert.ok(names.length >= 30, String(names.length));
  assert.deepEqual(names.filter((name) => !named.has(name)), []);
  assert.deepEqual(names.filter((name) => !seeds.includes(`("${name}", `)), []);
  const variants = [...(await read("core/src/rules.rs")).matchAll(/^ {4}([A-Z]\w+) = "[a-z-]+",$/gm)].map(([, variant]) => variant);
  const model = await read("tests/model/src/mutants.rs");
  assert.deepEqual(variants.filter((variant) => !model.includes(`Rule::${variant} => (`)), []);
});

for (const [of, after, before, many] of [
  ["requests that are committed together", "Whatever fails or ends in the middle of a group:", "The model's host", 9],
  ["the client's sessions", "In every state that the model reaches:", "The simulator runs", 10],
  ["effects that leave", "The model verifies in every state that it reaches:", "The promises:", 8],
]) {
  test(`the properties that docs/guarantees.md lists of ${of} are the model's`, async () => {
    const text = (await read("docs/guarantees.md")).split(after)[1].split(before)[0];
    const properties = (await read("tests/model/src/properties.rs")).replaceAll('\\"', '"');
    const named = namesIn(text).filter((name) => name !== "no");
    assert.equal(named.length, many);
    for (const name of named) assert.ok(properties.includes(`= "${name}"`), name);
  });
}

test("docs/guarantees.md names each flaw that the model has for a host that commits requests together", async () => {
  const text = (await read("docs/guarantees.md")).split("The model's host")[1].split("\n## ")[0];
  const flaws = [...(await read("tests/model/src/groups.rs")).matchAll(/^ {12}Self::\w+ => "([a-z-]+)",$/gm)].map(([, name]) => name);
  assert.equal(flaws.length, 5);
  assert.deepEqual(namesIn(text), flaws);
});

test("docs/guarantees.md names each mistake in the host that the simulator has", async () => {
  const text = (await read("docs/guarantees.md")).split("### Mistakes in the host")[1].split("\n## ")[0];
  const [seeds, mutants] = [await read("tests/sim/tests/mutants.rs"), await read("tests/sim/src/mutant.rs")];
  const twins = namesIn(text);
  assert.deepEqual(twins.toSorted(), [...mutants.matchAll(/^    \w+ = "([a-z-]+)",$/gm)].map(([, name]) => name).sort());
  for (const name of twins) assert.ok(seeds.includes(`("${name}", `), name);
});

for (const [what, after, many] of [["the client's host", "\n## The client's host\n", 5], ["the store on disk", "For the store on disk:", 5]]) {
  test(`each promise of ${what} names tests that exist`, async () => {
    const text = (await read("docs/guarantees.md")).split(after)[1].split("\n## ")[0];
    const promises = text.split(/^- /m).slice(1);
    const known = await sdkTests();
    assert.equal(promises.length, many);
    for (const promise of promises) {
      assert.ok(namesIn(promise).length > 0, promise);
      for (const name of namesIn(promise)) assert.ok(known.includes(name), name);
    }
  });
}

test("docs/guarantees.md names each test file of the scenarios, of Firefox and of WebKit, and no other", async () => {
  const text = (await read("docs/guarantees.md")).split("## In real browsers")[1].split("\n## ")[0];
  const named = namesIn(text).filter((name) => name.endsWith(".test.mjs"));
  const folders = await Promise.all(["scenarios", "firefox", "webkit"].map(async (folder) => (await readdir(join(ROOT, "tests/e2e", folder))).map((name) => `${folder}/${name}`)));
  assert.deepEqual(named.sort(), folders.flat().filter((name) => name.endsWith(".test.mjs")).sort());
});
