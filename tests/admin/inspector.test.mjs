// Tests what the inspector shows in Chromium of 10,000 keys and a million records, and how the address leads to it.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { until } from "../e2e/lossy.mjs";
import { TOKEN, USERS_TOKEN } from "./fake.mjs";
import { at, hasRows, inspect, isOf, rows, shows, stateField } from "./inspector.mjs";
import { EMPTY, FOREIGN, HEAVY, HOSTILE, KEYS, SMALL, idOf, keys, mix, numberOf, stateOf } from "./world.mjs";

/** A test that takes longer hangs. */
const LIMIT = { timeout: 90_000 };

const { fake, visitor, open } = await inspect(after);
const idIn = (key, state, isRight = () => true) => {
  for (let n = 0; ; n += 1) if (stateOf(n) === state && isRight(n)) return idOf(numberOf(key), n);
};
const sorted = (by) => [...keys].sort(by).map(({ key }) => key);
const names = async (tab) => (await rows(tab)).map(([name]) => name);

test("the page asks for the token, says why one is refused, and keeps it only in the tab's session storage", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open(`/inspector${at(SMALL)}`);
  const give = async (token, says) => {
    await tab.getByLabel("Administration token").fill(token);
    await tab.keyboard.press("Enter");
    await shows(tab, says);
  };
  await give("wrong", "The administration token was refused.");
  await give("a-token-that…", "The administration token has characters that a token can't have.");
  await give(USERS_TOKEN, "This token is not the administrator's.");
  await give(TOKEN, "accounts/alice");
  await tab.getByRole("meter").first().waitFor();
  assert.deepEqual(await tab.evaluate(() => [location.search, location.hash, document.cookie, localStorage.length, sessionStorage.length]), ["", at(SMALL), "", 0, 1]);
  assert.ok(fake.calls.every(({ path }) => !path.includes(TOKEN)));
  const other = await mine.open("/inspector");
  await other.getByLabel("Administration token").waitFor();
  await tab.getByRole("button", { name: "Sign out" }).click();
  await tab.getByLabel("Administration token").waitFor();
  assert.equal(await tab.evaluate(() => sessionStorage.length), 0);
  assert.deepEqual(mine.complaints, []);
});

test("a browser whose language is no valid language tag still shows the page", LIMIT, async (t) => {
  const mine = await visitor(t);
  await mine.before(() => Object.defineProperty(Navigator.prototype, "language", { get: () => "C" }));
  const tab = await mine.open("/inspector");
  await shows(tab, "Administration token");
  assert.deepEqual(mine.complaints, []);
});

test("a token that is refused later is asked for anew, and then the same place is shown", LIMIT, async (t) => {
  const { tab } = await open(t, at(SMALL));
  await hasRows(tab, 100);
  fake.faults.push({ on: "read", kind: 401, code: "unauthorized" });
  await tab.getByRole("button", { name: "Last hour" }).click();
  await shows(tab, "The administration token was refused.");
  await tab.getByLabel("Administration token").fill(TOKEN);
  await tab.getByRole("button", { name: "Sign in" }).click();
  await hasRows(tab, 100);
  assert.equal(await tab.evaluate(() => location.hash), at(SMALL));
});

test("invisible and direction-changing characters in a key's name or an outcome are shown as escapes", LIMIT, async (t) => {
  const [disguised, shown] = ["accounts/\u202eecila", "accounts/\\u{202e}ecila"];
  const id = idIn(SMALL, "executed", (n) => mix(n, 12) % 8 === 4);
  const { mine, tab } = await open(t, at(EMPTY));
  await tab.route((url) => url.pathname.includes(encodeURIComponent(disguised)), async (route) => {
    const response = await route.fetch({ url: route.request().url().replace(encodeURIComponent(disguised), encodeURIComponent(SMALL)) });
    const body = (await response.text()).replaceAll(`"${SMALL}"`, JSON.stringify(disguised)).replaceAll("no-store", "no\u202estore").replaceAll("Größe", "Grö\u2066ße");
    await route.fulfill({ response, body });
  });
  const nothingUnseen = async () => assert.deepEqual((await tab.evaluate(() => document.title + document.body.textContent)).match(/[\p{C}\p{Zl}\p{Zp}]/gu).filter((unseen) => unseen !== "\n"), []);
  await tab.goto(`${fake.url}/inspector${at(disguised)}`);
  await isOf(tab, shown);
  await tab.getByRole("button", { name: "Delete this key…" }).click();
  assert.deepEqual(await tab.locator("h1 code, dialog code").allTextContents(), [shown, shown]);
  const [name, go] = [tab.getByLabel("Type the name of the key"), tab.getByRole("button", { name: "Delete the key" })];
  for (const [typed, isOff] of [["accounts/alice", "true"], [shown, "false"], ["accounts/ecila", "true"], [disguised, "false"]]) {
    await name.fill(typed);
    assert.equal(await go.getAttribute("aria-disabled"), isOff, JSON.stringify(typed));
  }
  await tab.getByRole("button", { name: "Do nothing" }).click();
  await hasRows(tab, 100);
  await nothingUnseen();
  await tab.goto(`${fake.url}/inspector${at(disguised, id)}`);
  for (const text of ["no\\u{202e}store", "Grö\\u{2066}ße", shown]) await shows(tab, text);
  await nothingUnseen();
  assert.deepEqual(mine.complaints, []);
});

test("10,000 keys load page by page as one scrolls, in order, each once, up to the last", LIMIT, async (t) => {
  const calls = fake.calls.length;
  const { mine, tab } = await open(t);
  await hasRows(tab, 100);
  await shows(tab, "of 10,000 keys");
  const asked = () => fake.calls.slice(calls).filter(({ path }) => path.includes("/keys?"));
  assert.equal(asked().length, 1, "one page at first");
  await until(
    () =>
      tab.evaluate(() => {
        scrollTo(0, document.body.scrollHeight);
        return document.querySelector(".count").textContent === "10,000 of 10,000 keys";
      }),
    "all keys are shown",
    80_000,
  );
  assert.equal(asked().length, KEYS / 200);
  assert.deepEqual(await names(tab), sorted((one, other) => other.created - one.created));
  // Rows that are out of sight cost nothing, so the page answers at once. Its CPU time is measured, so other work of a busy machine doesn't count.
  const devtools = await tab.context().newCDPSession(tab);
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  const worked = async () => (await devtools.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value * 1_000;
  const before = await worked();
  await tab.evaluate(async () => {
    for (const share of [0, 0.5, 1]) {
      scrollTo(0, document.body.scrollHeight * share);
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    }
  });
  const ms = (await worked()) - before;
  assert.ok(ms > 0 && ms < 3_000, `scrolling through all took ${ms} ms`);
  assert.deepEqual(mine.complaints, []);
});

test("the address says the order and prefix of the list of keys, and the back button returns to the same place", LIMIT, async (t) => {
  const { mine, tab } = await open(t);
  await tab.getByRole("link", { name: "Heaviest" }).click();
  await shows(tab, HEAVY);
  assert.deepEqual((await names(tab)).slice(0, 5), sorted((one, other) => other.bytes - one.bytes).slice(0, 5));
  assert.deepEqual((await rows(tab))[0].slice(1, 4), ["580,000", "1,680,000", "310 MB"]);
  await tab.getByLabel("Begins with").pressSequentially("carts/1");
  const heaviest = sorted((one, other) => other.bytes - one.bytes).filter((name) => name.startsWith("carts/1"));
  await until(async () => (await names(tab))[0] === heaviest[0], "the heaviest of these");
  assert.ok((await names(tab)).every((name) => name.startsWith("carts/1")), "all begin so");
  assert.equal(await tab.evaluate(() => `${location.hash} ${document.activeElement.id}`), "#order=heaviest&prefix=carts%2F1 prefix");
  await tab.getByRole("link", { name: "By name" }).click();
  const expected = sorted((one, other) => (one.key < other.key ? -1 : 1)).filter((name) => name.startsWith("carts/1"));
  await until(async () => (await names(tab))[0] === expected[0], "by name");
  await tab.evaluate(() => scrollTo(0, 1500));
  const place = await tab.evaluate(() => scrollY);
  assert.ok(place > 1000);
  const calls = fake.calls.length;
  await tab.getByRole("link", { name: expected[40], exact: true }).click();
  await tab.getByRole("meter").first().waitFor();
  await tab.goBack();
  await until(async () => (await names(tab))[0] === expected[0], "by name again");
  await until(async () => (await tab.evaluate(() => scrollY)) === place, "the place is the same");
  assert.deepEqual((await names(tab)).slice(0, 50), expected.slice(0, 50));
  assert.equal(fake.calls.slice(calls).filter(({ path }) => path.includes("/keys?")).length, 0, "nobody is asked again");
  await tab.goBack();
  await until(async () => (await tab.evaluate(() => location.hash)) === "#order=heaviest&prefix=carts%2F1", "the order before");
  // The previous list is shown until the address has been followed.
  await until(async () => (await names(tab))[0] === heaviest[0], "the heaviest");
  assert.ok((await names(tab)).every((name) => name.startsWith("carts/1")));
  assert.deepEqual(mine.complaints, []);
});

test("an empty list of keys or records, and a prefix without keys, say so", LIMIT, async (t) => {
  const { tab } = await open(t, "#prefix=none");
  await shows(tab, "No key begins with “none”.");
  await tab.goto(`${fake.url}/inspector${at(EMPTY)}`);
  await shows(tab, "There are no records here.");
  const empty = await inspect((end) => t.after(end), { keepsKeys: false });
  const { tab: other } = await empty.open(t);
  await shows(other, "There are no keys yet.");
});

test("a key shows its counts and limits, and names that are markup or no URL are shown as text", LIMIT, async (t) => {
  const { mine, tab } = await open(t, at(HEAVY));
  await shows(tab, "84 % of 2,000,000: nearly full");
  const meters = await tab.getByRole("meter").evaluateAll((all) => all.map((meter) => [meter.getAttribute("aria-label"), meter.getAttribute("aria-valuenow"), meter.firstChild.style.width]));
  assert.deepEqual(meters, [["Records: how full", "580000", "58%"], ["Tombstones: how full", "1680000", "84%"], ["Size: how full", "310024576", "3.87531%"]]);
  const text = await tab.locator("main").innerText();
  for (const part of ["580,000", "2026-11-20 12:00:00, 1 day ago", "1 day", "Forgotten before\nnever", "Sessions\n1,200, 1.2 % of 100,000", "executed\n580,842"]) assert.ok(text.includes(part), `${part} in ${text}`);
  for (const key of [HOSTILE, FOREIGN]) {
    await tab.goto(`${fake.url}/inspector${at(key)}`);
    await isOf(tab, key);
    await hasRows(tab, 10);
    await tab.locator(".page a").first().click();
    await tab.getByRole("heading", { name: "Life" }).waitFor();
    assert.equal(await tab.locator(".way").textContent(), `Keys › ${key}`);
  }
  assert.equal(await tab.evaluate(() => window.hacked), undefined);
  assert.equal(await tab.locator("main img").count(), 0);
  assert.deepEqual(mine.complaints, []);
});

test("a million records load page by page, one is found by its id, and the plots zoom to a chosen range", LIMIT, async (t) => {
  const { mine, tab } = await open(t, at(HEAVY));
  await hasRows(tab, 100);
  await shows(tab, "the shape is right");
  // A list that forgets to ask for the next page stops after some pages.
  for (const count of [200, 300, 400, 500, 600]) {
    await tab.evaluate(() => scrollTo(0, document.body.scrollHeight));
    await hasRows(tab, count);
  }
  const ids = await names(tab);
  assert.deepEqual(ids, ids.map((_, n) => idOf(0, n)));

  const times = () => fake.calls.filter(({ path }) => path.includes("/times?")).map(({ path }) => Object.fromEntries([...new URLSearchParams(path.split("?")[1])].map(([name, value]) => [name, Number(value)])));
  const first = times().at(-1);
  assert.ok(first.count > 40 && first.count <= 97 && first.step % 60_000 === 0, JSON.stringify(first));
  await tab.evaluate(() => scrollTo(0, 0));
  const box = await tab.locator(".canvas .u-over").boundingBox();
  await tab.mouse.move(box.x + box.width * 0.5, box.y + 50);
  await tab.mouse.down();
  await tab.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 4 });
  await tab.mouse.up();
  await until(() => times().at(-1).step < first.step, "a narrower range is asked for");
  const { from, step, count } = times().at(-1);
  const [begin, end] = [first.from + first.step * first.count * 0.5, first.from + first.step * first.count * 0.6];
  assert.ok(Math.abs(from - begin) < 2 * first.step && Math.abs(from + step * count - end) < 2 * first.step, JSON.stringify({ first, from, step, count }));
  const asked = times().length;
  await tab.getByRole("button", { name: "Zoom out" }).click();
  await until(() => times().length > asked, "a wider range is asked for");
  await tab.getByRole("button", { name: "All", exact: true }).click();
  await until(() => times().at(-1).from === first.from, "all again");
  await tab.getByText("As a table").click();
  assert.ok((await tab.locator(".times tbody tr").count()) > 40);

  const id = idOf(0, 765_432);
  await tab.getByLabel("Find an id").fill(` "${id}" `);
  await tab.keyboard.press("Enter");
  await until(async () => (await tab.locator("h1 code").textContent()) === id, "the record is shown");
  await tab.goBack();
  await hasRows(tab, 100);
  assert.deepEqual(mine.complaints, []);
});

test("a filter by state finds its records on all pages, and going back from one shows the same filter", LIMIT, async (t) => {
  const { mine, tab } = await open(t, at(SMALL));
  await hasRows(tab, 100);
  await stateField(tab).selectOption("poisoned");
  const expected = Array.from({ length: 1_200 }, (_, n) => n).filter((n) => stateOf(n) === "poisoned").map((n) => idOf(numberOf(SMALL), n));
  // The page looks at more records each time its foot comes into sight.
  await until(
    () =>
      tab.evaluate(() => {
        scrollTo(0, document.body.scrollHeight);
        return /^24 records$/.test(document.querySelector(".endless .count").textContent);
      }),
    "all are found",
  );
  assert.deepEqual(await names(tab), expected);
  await tab.getByRole("link", { name: expected[5], exact: true }).click();
  await shows(tab, "The handler crashed on it too often, so it never runs again.");
  await tab.goBack();
  await until(async () => (await names(tab))[0] === expected[0], "the same again");
  assert.deepEqual([await stateField(tab).inputValue(), await tab.evaluate(() => location.hash)], ["poisoned", `${at(SMALL)}&state=poisoned`]);
  await stateField(tab).selectOption("in-doubt");
  await shows(tab, "There are none.");
  await stateField(tab).selectOption("");
  await hasRows(tab, 100);
  assert.equal(await tab.evaluate(() => location.hash), at(SMALL));
  assert.deepEqual(mine.complaints, []);
});

test("each record has one mark of its state, in forced colours too, and on a phone the mark stands right above the id", LIMIT, async (t) => {
  const { tab } = await open(t, at(SMALL), { viewport: { width: 375, height: 800 }, forcedColors: "active" });
  await hasRows(tab, 100);
  const list = await tab.evaluate(() => {
    const marks = (element) => [element, ...element.querySelectorAll("*")].filter((each) => getComputedStyle(each, "::before").content === '""');
    const [first] = document.querySelectorAll(".page [role=row]");
    return { marks: marks(first).length, ofHead: marks(document.querySelector(".head")).length, indent: marks(first).at(-1).getBoundingClientRect().x - first.querySelector("a").getBoundingClientRect().x };
  });
  assert.deepEqual(list, { marks: 1, ofHead: 0, indent: 0 });
});

test("typing a prefix keeps the cursor where it was, and the text of an input method under composition is left alone", LIMIT, async (t) => {
  const { mine, tab } = await open(t);
  await hasRows(tab, 100);
  const prefix = tab.getByLabel("Begins with");
  const isAt = (fragment) => until(async () => decodeURIComponent(await tab.evaluate(() => location.hash)) === fragment, fragment);
  await prefix.pressSequentially("acounts");
  for (let left = 0; left < 6; left += 1) await tab.keyboard.press("ArrowLeft");
  await tab.keyboard.press("c");
  await isAt("#prefix=accounts");
  await tab.keyboard.press("X");
  assert.equal(await prefix.inputValue(), "acXcounts");
  await prefix.fill("");
  await isAt("");
  const keyboard = await tab.context().newCDPSession(tab);
  for (const text of ["か", "かん"]) {
    await keyboard.send("Input.imeSetComposition", { text, selectionStart: text.length, selectionEnd: text.length });
    // This is longer than the field waits for somebody who types.
    await tab.evaluate(() => new Promise((resolve) => setTimeout(resolve, 400)));
  }
  await keyboard.send("Input.insertText", { text: "漢" });
  await isAt("#prefix=漢");
  assert.equal(await prefix.inputValue(), "漢");
  assert.deepEqual(mine.complaints, []);
});

test("the menu marks the current view, and going up from a key returns to the list of keys in doubt", LIMIT, async (t) => {
  const { mine, tab } = await open(t, `${at(SMALL)}&state=in-doubt`);
  const current = () => tab.locator("nav [aria-current=page]").allTextContents();
  await tab.locator(".way").waitFor();
  assert.deepEqual(await current(), ["Keys"]);
  await tab.evaluate(() => (location.hash = "#order=name&state=in-doubt"));
  await shows(tab, "Nothing is in doubt");
  await tab.evaluate((fragment) => (location.hash = fragment), at(SMALL));
  await tab.locator(".way").getByRole("link", { name: "Keys" }).click();
  await until(async () => (await tab.evaluate(() => location.hash)) === "#order=name&state=in-doubt", "the same keys again");
  await tab.evaluate(() => (location.hash = "#forget="));
  await until(async () => (await current())[0] === "Forget", "the menu says so");
  assert.deepEqual(mine.complaints, []);
});

test("an id is found if typed quoted as on the wire, and the spaces of an id are kept and shown", LIMIT, async (t) => {
  const { tab } = await open(t, at(SMALL));
  for (const [typed, id] of [['"a\\"b\\\\c"', 'a"b\\c'], ['" a "', " a "], [" a ", "a"]]) {
    await tab.getByLabel("Find an id").fill(typed);
    await tab.keyboard.press("Enter");
    await until(() => tab.evaluate((shown) => location.hash.includes("&id=") && document.querySelector("h1 code").innerText === shown, id), id);
    assert.equal(await tab.evaluate(() => new URLSearchParams(location.hash.slice(1)).get("id")), id);
    await tab.goBack();
  }
});

test("zooming out of a plot ends at 365 days, and loses no records", LIMIT, async (t) => {
  const { tab } = await open(t, at(SMALL));
  await hasRows(tab, 100);
  const told = () => tab.locator(".plot-text").textContent();
  const records = async () => Number(/^([\d,]+) records/.exec(await told())?.[1].replaceAll(",", "") ?? NaN);
  await until(async () => (await records()) > 0, "there are some");
  const all = await records();
  for (let zooms = 0; zooms < 20; zooms += 1) await tab.getByRole("button", { name: "Zoom out" }).click();
  await until(async () => / 365 days/.test(await told()), "all of time");
  assert.ok((await records()) >= all, await told());
});

test("a record shows its life, and its outcome as JSON, text or bytes, never as markup", LIMIT, async (t) => {
  const executed = (kind) => idIn(SMALL, "executed", (n) => mix(n, 12) % 8 === kind && n % 10 !== 9);
  const { mine, tab } = await open(t, at(SMALL, executed(5)));
  await tab.getByRole("heading", { name: "Outcome" }).waitFor();
  const life = await tab.locator(".life li b").evaluateAll((all) => all.map((title) => title.firstChild.textContent));
  assert.deepEqual(life, ["First sent", "Executed", "Latest deadline", "Now", "Outcome expires"]);
  const body = tab.locator(".outcome pre");
  assert.match(await body.textContent(), /^\{\n {2}"id": "order-\d+",\n/);
  await tab.getByRole("radio", { name: "Hex" }).check();
  assert.match(await body.textContent(), /^000000 {2}7b 22 69 64 22 .* {2}\{"id":"order/);
  await tab.goto(`${fake.url}/inspector${at(SMALL, executed(1))}`);
  await until(async () => /^<!doctype html><h1 onclick/.test(await body.textContent()), "markup is text");
  assert.deepEqual(await tab.evaluate(() => [window.hacked, document.querySelectorAll("main script, main img").length]), [undefined, 0]);
  await tab.goto(`${fake.url}/inspector${at(SMALL, executed(2))}`);
  await until(async () => /^000000 {2}/.test(await body.textContent()), "bytes are shown as bytes");
  await tab.goto(`${fake.url}/inspector${at(SMALL, idIn(SMALL, "acknowledged", (n) => n % 10 !== 9))}`);
  await shows(tab, "It is no longer kept.");
  assert.deepEqual(mine.complaints, []);
});

test("a missing key or record, a failing server and a lost network are told, and Try again works after a failure", LIMIT, async (t) => {
  const { tab } = await open(t, at("nobody"));
  await shows(tab, "There is no such key here.");
  await tab.goto(`${fake.url}/inspector${at(SMALL, "nobody")}`);
  await shows(tab, "This key knows no such id.");
  fake.faults.push({ on: "read", kind: 503, code: "unavailable" });
  await tab.goto(`${fake.url}/inspector${at(SMALL, idIn(SMALL, "poisoned"))}`);
  await shows(tab, "The server is not available at the moment.");
  await tab.getByRole("button", { name: "Try again" }).click();
  await shows(tab, "The handler crashed on it too often, so it never runs again.");
  await tab.context().setOffline(true);
  await tab.getByRole("link", { name: "Keys", exact: true }).first().click();
  await shows(tab, "The server can't be reached.");
  await tab.context().setOffline(false);
  await tab.getByRole("button", { name: "Try again" }).click();
  await hasRows(tab, 100);
});
