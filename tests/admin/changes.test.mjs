// Tests the changes that an administrator makes in the inspector, in Chromium: the inspector asks before each, makes it once, and reports the result.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { until } from "../e2e/lossy.mjs";
import { at, hasRows, inspect, isOf, rows, shows, stateField } from "./inspector.mjs";
import { EMPTY, FOREIGN, HEAVY, SMALL, idOf, keys, numberOf, sentBy, stateOf } from "./world.mjs";

/** A test that takes longer hangs. */
const LIMIT = { timeout: 90_000 };
/** Where the screenshots of the views are after a run. */
const SHOTS = join(ROOT, "build/shots/inspector");

const { fake, visitor, open } = await inspect(after);
let last = 0;
/** Each time another id in this state, and always one with a first-sent. */
const idIn = (state, key = SMALL) => {
  do last += 1;
  while (stateOf(last) !== state || last % 10 === 9);
  return idOf(numberOf(key), last);
};
const dialogOf = (tab) => tab.getByRole("dialog");
/** Adds a fault that holds a change until the function that this returns is called. So a test can look at what the page shows meanwhile. */
function heldChange() {
  let go;
  fake.faults.push({ on: "change", kind: "hold", until: new Promise((resolve) => (go = resolve)) });
  return go;
}

test("a double click, a lost request and a lost answer make one change under one id", LIMIT, async (t) => {
  const id = idIn("suspect");
  const { tab } = await open(t, at(SMALL, id));
  const [calls, done] = [fake.calls.length, fake.done.length];
  await tab.getByRole("button", { name: "Cancel it…" }).click();
  assert.match(await dialogOf(tab).innerText(), /tried again when its client sends it\. Once it is cancelled it never runs\./);
  fake.faults.push({ on: "change", kind: "lose-request" }, { on: "change", kind: "lose-answer" });
  const go = heldChange();
  await tab.getByRole("button", { name: "Cancel the id" }).dblclick();
  await shows(tab, "No answer yet. The same is sent again; it happens once.");
  await tab.keyboard.press("Escape");
  await tab.keyboard.press("Escape");
  go();
  await shows(tab, "It is cancelled: from now on it never runs.");
  const changes = fake.calls.slice(calls).filter(({ method }) => method === "POST");
  assert.deepEqual([changes.length, new Set(changes.map((call) => call.id)).size], [3, 1]);
  assert.deepEqual(fake.done.slice(done), [`POST keys/${SMALL}/cancel ${JSON.stringify({ id })}`]);
  await tab.getByRole("button", { name: "Close" }).click();
  await shows(tab, "It was cancelled. From then on it never runs.");
  assert.equal(await tab.locator(".changes button").count(), 0);
});

test("the inspector lists keys with requests in doubt, and each leads to its records in doubt", LIMIT, async (t) => {
  const { mine, tab } = await open(t, "#order=name");
  await tab.getByRole("link", { name: "In doubt" }).click();
  await shows(tab, "Nothing is in doubt at any key, by the last report of each key.");
  for (const id of ["doubt-one", "doubt-two"]) fake.doubt(FOREIGN, id);
  await tab.reload();
  await hasRows(tab, 1);
  assert.equal(await tab.evaluate(() => location.hash), "#order=name&state=in-doubt");
  assert.deepEqual((await rows(tab))[0].slice(0, 3), [FOREIGN, "8", "2"]);
  await shows(tab, "1 of 1 key");
  await tab.getByRole("link", { name: FOREIGN }).click();
  await until(async () => (await stateField(tab).inputValue()) === "in-doubt", "the state is chosen");
  assert.match(await tab.locator("main").innerText(), /In doubt\n2\n/);
  await tab.goBack();
  await tab.getByRole("link", { name: "All" }).click();
  await shows(tab, "of 10,000 keys");
  assert.deepEqual(mine.complaints, []);
});

test("the inspector lists keys with parked effects, and each leads to its records of all states", LIMIT, async (t) => {
  const { mine, tab } = await open(t, "#order=name");
  await tab.getByRole("link", { name: "Parked" }).click();
  await shows(tab, "Nothing that was sent is parked at any key, by the last report of each key.");
  fake.park(FOREIGN);
  await tab.reload();
  await hasRows(tab, 1);
  assert.equal(await tab.evaluate(() => location.hash), "#order=name&state=parked");
  assert.deepEqual((await rows(tab))[0].slice(0, 3), [FOREIGN, "8", "1"]);
  assert.equal((await tab.getByRole("columnheader").allTextContents())[2], "Parked");
  await tab.getByRole("link", { name: FOREIGN }).click();
  await until(async () => (await tab.evaluate(() => location.hash)) === at(FOREIGN), "its records are of all states");
  await tab.goBack();
  await hasRows(tab, 1);
  assert.deepEqual(mine.complaints, []);
});

test("a request in doubt is resolved with an outcome that is then shown, or as not run", LIMIT, async (t) => {
  for (const id of ["doubt-ran", "doubt-not"]) fake.doubt(SMALL, id);
  const { tab } = await open(t, at(SMALL, "doubt-ran"));
  const done = fake.done.length;
  await shows(tab, "Nobody knows whether it ran, unless it is under way at this moment.");
  await tab.getByRole("button", { name: "It ran…" }).click();
  await tab.keyboard.press("Enter");
  assert.equal(await dialogOf(tab).getByRole("status").textContent(), "", "nothing is sent of which nobody has given a status");
  const looks = (label) => tab.getByLabel(label).evaluate((field) => [getComputedStyle(field).backgroundColor, field.getBoundingClientRect().width]);
  for (const label of ["Status", "Body"]) assert.deepEqual(await looks(label), await looks("Content-Type"), label);
  await tab.getByLabel("Status").fill("600");
  await tab.getByRole("button", { name: "Record this outcome" }).click();
  assert.equal(fake.done.length, done, "no status of an outcome");
  await tab.getByLabel("Status").fill("201");
  await tab.getByLabel("Body").fill('{"order":7}');
  fake.faults.push({ on: "change", kind: "lose-answer" });
  const go = heldChange();
  await tab.getByRole("button", { name: "Record this outcome" }).click();
  await shows(tab, "No answer yet. The same is sent again; it happens once.");
  assert.equal(await tab.getByLabel("Body").isDisabled(), true);
  go();
  await shows(tab, "It is resolved: every attempt gets this outcome.");
  await tab.getByRole("button", { name: "Close" }).click();
  await shows(tab, '"order": 7');
  assert.equal(await tab.getByRole("button", { name: "It ran…" }).count(), 0);

  const other = await open(t, at(SMALL, "doubt-not"));
  await other.tab.getByRole("button", { name: "It did not run…" }).click();
  const clicked = heldChange();
  await other.tab.getByRole("button", { name: "It did not run", exact: true }).dblclick();
  clicked();
  await shows(other.tab, "It is resolved: from now on it never runs.");
  assert.deepEqual(fake.done.slice(done).map((what) => what.split(" ")[1]), [`keys/${SMALL}/records/doubt-ran/resolve`, `keys/${SMALL}/records/doubt-not/resolve`]);
});

test("after no answer at all, the inspector says that the result is unknown, and the same change can be sent again", LIMIT, async (t) => {
  const id = idIn("executed");
  const { tab } = await open(t, at(SMALL, id));
  const [calls, done] = [fake.calls.length, fake.done.length];
  await tab.getByRole("button", { name: "Delete this record…" }).click();
  // The test moves the page's clock, so the attempts are over at once.
  await tab.clock.install();
  fake.faults.push({ on: "change", kind: "lose-answer" }, ...Array.from({ length: 30 }, () => ({ on: "change", kind: "lose-request" })));
  await tab.getByRole("button", { name: "Delete the record" }).click();
  await until(async () => {
    await tab.clock.runFor(1_000);
    return dialogOf(tab).getByRole("alert").isVisible();
  }, "it gives up");
  assert.match(await dialogOf(tab).innerText(), /It can't be known whether the change was made\. It is safe to send the same change again: it happens only once\./);
  fake.faults.length = 0;
  await tab.getByRole("button", { name: "Send the same again" }).click();
  await shows(tab, "The record is reduced to its id. The request had run, and its effect stays.");
  assert.deepEqual([new Set(fake.calls.slice(calls).filter(({ method }) => method === "DELETE").map((call) => call.id)).size, fake.done.length - done], [1, 1]);
});

test("the question before the deletion of a record says what that does in the state of the record", LIMIT, async (t) => {
  const { tab } = await open(t);
  for (const [state, says] of [["executed", /^Delete this record\?\n+The outcome is thrown away/], ["poisoned", /crashed too often: it never ran, and never will\. Nothing is kept of it but the id/], ["suspect", /cancelled instead: it never runs/]]) {
    const id = idIn(state);
    await tab.goto(`${fake.url}/inspector${at(SMALL, id)}`);
    await isOf(tab, id);
    await tab.getByRole("button", { name: "Delete this record…" }).click();
    assert.match(await dialogOf(tab).innerText(), says);
    await tab.getByRole("button", { name: "Do nothing" }).click();
  }
});

test("a key is deleted only once its name is typed, and then it is gone from the list", LIMIT, async (t) => {
  const { key } = [...keys].sort((one, other) => other.created - one.created)[1];
  const { mine, tab } = await open(t);
  await tab.getByRole("link", { name: key, exact: true }).click();
  await tab.getByRole("button", { name: "Delete this key…" }).click();
  const button = tab.getByRole("button", { name: "Delete the key" });
  const done = fake.done.length;
  for (const wrong of ["", key.slice(1), key.toUpperCase(), `${key} `]) {
    await tab.getByLabel("Type the name of the key").fill(wrong);
    await button.click({ force: true });
    await tab.keyboard.press("Enter");
    assert.equal(await button.getAttribute("aria-disabled"), "true", wrong);
  }
  assert.equal(fake.done.length, done);
  await tab.getByLabel("Type the name of the key").fill(key);
  await button.click();
  await shows(tab, "The key is deleted. What is first sent before 2026-11-21 12:00:00 is refused, new requests too.");
  await tab.getByRole("button", { name: "Close" }).click();
  await shows(tab, "of 9,999 keys");
  assert.deepEqual(fake.done.slice(done), [`DELETE keys/${key}`]);
  assert.equal(await tab.getByRole("link", { name: key, exact: true }).count(), 0);
  assert.deepEqual(mine.complaints, []);
});

test("a question that is closed changes nothing, and each question has a change id of its own", LIMIT, async (t) => {
  const { tab } = await open(t, at(FOREIGN, "not there"));
  const [calls, done] = [fake.calls.length, fake.done.length];
  const begin = () => tab.getByRole("button", { name: "Cancel this id…" }).click();
  await begin();
  await tab.getByRole("button", { name: "Do nothing" }).click();
  await begin();
  await tab.keyboard.press("Escape");
  await dialogOf(tab).waitFor({ state: "detached" });
  assert.equal(fake.done.length, done);
  for (const id of ["first", "second"]) {
    await tab.goto(`${fake.url}/inspector${at(FOREIGN, id)}`);
    await isOf(tab, id);
    await begin();
    await tab.getByRole("button", { name: "Cancel the id" }).click();
    // The question also has the words "is cancelled". And while the change is on its way, the dialog stays.
    await shows(tab, "It is cancelled: from now on it never runs.");
    await tab.goBack();
    // Going back closes the dialog.
    await dialogOf(tab).waitFor({ state: "detached" });
  }
  const ids = fake.calls.slice(calls).filter(({ method }) => method === "POST").map(({ id }) => id);
  assert.equal(new Set(ids).size, 2);
});

test("a refused change is shown with its reason, and that nothing was changed", LIMIT, async (t) => {
  const id = idIn("suspect");
  const { tab } = await open(t, at(SMALL, id));
  await tab.getByRole("button", { name: "Cancel it…" }).click();
  fake.faults.push({ on: "change", kind: 403, code: "forbidden" });
  await tab.getByRole("button", { name: "Cancel the id" }).click();
  await shows(tab, "Nothing was changed.");
  assert.match(await dialogOf(tab).innerText(), /This token is not the administrator's\./);
});

test("forget explains an age or a date before it begins, and shows its progress to the end", LIMIT, async (t) => {
  const { mine, tab } = await open(t, "#forget=");
  const done = fake.done.length;
  const input = tab.getByLabel("Older than");
  const button = tab.getByRole("button", { name: "Forget…" });
  for (const [text, means] of [["soon", "That is neither an age nor a date."], ["2027-01-01", "That is yet to come."], ["30d", "What was first sent before 2026-10-22 12:00:00, 30 days ago."]]) {
    await input.fill(text);
    await shows(tab, means);
    assert.equal(await button.getAttribute("aria-disabled"), String(text !== "30d"));
  }
  await button.click();
  assert.match(await dialogOf(tab).innerText(), /Forget what is older than 2026-10-22 12:00:00\?[\s\S]*At all 9,\d{3} keys[\s\S]*can't be stopped/);
  await tab.getByRole("button", { name: "Forget it" }).click();
  await shows(tab, /^It has begun, at 9,\d{3} keys\.$/);
  await tab.getByRole("button", { name: "Close" }).click();
  await shows(tab, "orders/slow");
  await shows(tab, /^Done: 9,\d{3} keys have forgotten what was first sent before 2026-10-22 12:00:00\.$/);
  assert.deepEqual(await tab.getByRole("progressbar").evaluate((bar) => bar.value === bar.max), true);
  assert.match(await tab.evaluate(() => location.hash), /^#forget=job-\d$/);
  await tab.reload();
  await shows(tab, /^Done: /);
  assert.deepEqual(fake.done.slice(done), [`POST forget ${JSON.stringify({ before: Date.UTC(2026, 9, 22, 12) / 1000 })}`]);
  assert.deepEqual(mine.complaints, []);
  // A forget that is no longer kept must not be reported as a missing key.
  await tab.goto(`${fake.url}/inspector#forget=job-99`);
  await shows(tab, "There is no forget with this id here.");
});

test("the keyboard is enough to get from the list to a change and back to its button", LIMIT, async (t) => {
  const { tab } = await open(t, "#order=heaviest");
  await hasRows(tab, 100);
  const focused = () => tab.evaluate(() => document.activeElement.textContent);
  const reach = async (text) => {
    for (let pressed = 0; (await focused()) !== text; pressed += 1) {
      assert.ok(pressed < 80, `${text} can be reached by Tab; ${await focused()}`);
      await tab.keyboard.press("Tab");
    }
  };
  await reach("Skip to the content");
  await tab.keyboard.press("Enter");
  assert.equal(await tab.evaluate(() => `${location.hash} ${document.activeElement.id}`), "#order=heaviest view");
  await reach(SMALL);
  await tab.keyboard.press("Enter");
  await tab.getByRole("meter").first().waitFor();
  assert.equal(await focused(), `Key ${SMALL}`, "the new page begins at its heading");
  await reach("Delete this key…");
  await tab.keyboard.press("Enter");
  assert.equal(await tab.evaluate(() => document.activeElement.id), "confirm-name");
  await tab.keyboard.press("Escape");
  assert.equal(await focused(), "Delete this key…", "back at the button");
});

test("axe finds nothing serious in any view, in light, dark and on a phone, and nothing is wider than the screen", LIMIT, async (t) => {
  const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  await mkdir(SHOTS, { recursive: true });
  const check = async (tab, what) => {
    await tab.screenshot({ path: join(SHOTS, `${what.replace(/[^a-z0-9]+/gi, "-")}.png`) });
    // Evaluating the script bypasses the page's policy, which allows only its own scripts.
    if (!(await tab.evaluate(() => "axe" in window))) await tab.evaluate(axe);
    const { violations } = await tab.evaluate(() => axe.run({ resultTypes: ["violations"] }));
    const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes[0].html]), [], what);
    assert.ok(await tab.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${what} is not wider than the screen`);
  };
  fake.effects.set(EMPTY, sentBy());
  const views = { "#prefix=carts/12": "of", [at(HEAVY)]: "the shape is right", [at(EMPTY)]: "what waits, and what was refused", [at(SMALL, idIn("executed"))]: "Fingerprint", [at(SMALL, idIn("acknowledged"))]: "no longer kept", [at(SMALL, "none")]: "knows no such id", "#forget=": "Older than", "#forget=nothing": "no forget with this id" };
  for (const [colorScheme, viewport] of [
    ["light", { width: 1280, height: 900 }],
    ["dark", { width: 1280, height: 900 }],
    ["light", { width: 360, height: 740 }],
  ]) {
    const { mine, tab } = await open(t, "", { colorScheme, viewport });
    for (const [fragment, text] of Object.entries(views)) {
      await tab.goto(`${fake.url}/inspector${fragment}`);
      await shows(tab, text);
      await check(tab, `${colorScheme} ${viewport.width} ${fragment}`);
      if (fragment !== at(EMPTY)) continue;
      await tab.locator("#effects").evaluate((heading) => heading.scrollIntoView());
      await check(tab, `${colorScheme} ${viewport.width}, sent to others`);
    }
    await tab.goto(`${fake.url}/inspector${at(FOREIGN)}`);
    await tab.getByRole("button", { name: "Delete this key…" }).click();
    await check(tab, `${colorScheme} ${viewport.width}, asking`);
    const stranger = await (await visitor(t, { colorScheme, viewport })).open("/inspector");
    await stranger.getByLabel("Administration token").waitFor();
    await check(stranger, `${colorScheme} ${viewport.width}, signing in`);
    assert.deepEqual(mine.complaints, []);
  }
});
