// The page that `npm start` serves, in Chromium: the chaos lab as a visitor uses it.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { stateFolder } from "./folders.mjs";
import { accounts, assertAgrees, labs, result, text, timeline } from "./lab.mjs";
import { until } from "./lossy.mjs";
import { npmStart } from "./npm-start.mjs";

/** A test that takes longer than this hangs. */
const LIMIT = { timeout: 120_000 };
const THIRD = "#lose-requests=33&lose-answers=33";

const state = await stateFolder("semel-lab-");
const server = await npmStart({ after }, { SEMEL_PORT: "0", SEMEL_STATE: state });
after(() => rm(state, { recursive: true, force: true }));
assert.ok(server.url, server.output());
const { url } = server;
const { visitor } = await labs(after, url);

/** Collects how much the page moves by itself: the layout shifts that no input explains. */
const watchShifts = () => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput, sources } of list.getEntries()) if (!hadRecentInput) window.shifts.push([value, sources.map(({ node }) => node?.id || node?.className || node?.nodeName).join()]);
  }).observe({ type: "layout-shift", buffered: true });
};

test("the lab works in a browser whose language is no valid locale", LIMIT, async (t) => {
  const mine = await visitor(t);
  await mine.before(() => Object.defineProperty(Navigator.prototype, "language", { get: () => "C" }));
  const tab = await mine.open("/#run=2");
  assert.match(await result(tab, 2), /^2 deposits, \$20: .*; semel\.fetch has \$20, exact\.$/);
  assert.equal(await tab.locator("#plot canvas").count(), 1);
  assert.deepEqual(mine.complaints, []);
});

test("with a third of everything lost and a kill, naive is wrong, Semel exact, and the timeline matches the server", LIMIT, async (t) => {
  const mine = await visitor(t);
  await mine.before(watchShifts);
  const tab = await mine.open(`/${THIRD}&run=100&kill=50`);
  const said = await result(tab, 100);
  const { naive, semel } = await accounts(tab, url);
  assert.deepEqual([semel.balance, semel.entries], [1000, 100]);
  assert.ok(naive.balance > 1000, `the naive balance is ${naive.balance}`);
  const money = (dollars) => `$${dollars.toLocaleString("en-US")}`;
  assert.equal(said, `100 deposits, $1,000: fetch with retries has ${money(naive.balance)}, ${money(naive.balance - 1000)} too much; semel.fetch has $1,000, exact.`);
  assert.equal(await text(tab, "clicked"), "$1,000");
  assert.equal(await text(tab, "balance-naive"), money(naive.balance));
  assert.equal(await text(tab, "note-naive"), `+${money(naive.balance - 1000)}: too much`);
  assert.equal(await text(tab, "balance-semel"), "$1,000");
  assert.equal(await text(tab, "note-semel"), "±$0: exact");

  const drawn = await timeline(tab);
  assertAgrees(drawn, { naive, semel });
  const fates = new Set([...drawn.marks.values()].map(({ fate }) => fate));
  for (const fate of ["lost", "executed", "again", "replayed"]) assert.ok(fates.has(fate), `an attempt was ${fate}`);
  assert.ok(drawn.rows.every(({ semel }) => semel.kind === "right" && semel.executed === 1));
  assert.equal(drawn.rows.reduce((sum, { naive }) => sum + naive.executed, 0) * 10, naive.balance);
  assert.match(await text(tab, "rows"), /The server was killed/);
  const counted = await tab.evaluate(() => [...document.querySelectorAll("#counts tr")].map((row) => [...row.cells].map(({ textContent }) => textContent)));
  const replays = [...semel.logged.values()].filter((status) => status === "replayed").length;
  const [executed, replayed] = [naive.entries, replays].map(String);
  assert.deepEqual(counted.slice(0, 2), [["executed", executed, executed, "100", "100"], ["replayed", "0", "0", replayed, replayed]]);
  assert.deepEqual(counted.at(-1), ["entries", "", executed, "", "100"]);
  await until(() => /the page kills the server/.test(server.output()), "it is printed");
  assert.deepEqual(mine.complaints, []);
  assert.deepEqual(await tab.evaluate(() => window.shifts), []);
});

test("after a reload in mid-run the run goes on, Semel finishes what naive has forgotten, and the page says so", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open(`/${THIRD}&run=60&crash=30`);
  await result(tab, 60);
  const { naive, semel } = await accounts(tab, url);
  assert.deepEqual([semel.balance, semel.entries], [600, 60]);
  const drawn = await timeline(tab);
  assertAgrees(drawn, { naive, semel });
  assert.match(await text(tab, "rows"), /Tab 1 was loaded again: [1-9]\d* deposits? unfinished\. Semel goes on with (it|them); fetch with retries has forgotten its \d+\./);
  assert.match(await text(tab, "open-naive"), /^[1-9]\d* forgotten$/);
  assert.ok(drawn.rows.every(({ semel }) => semel.executed === 1));
  assert.equal(await text(tab, "progress-text"), "60 of 60 clicks made, 60 answered by Semel");
  // The address no longer asks for a run, so another reload starts none.
  assert.equal(await tab.evaluate(() => location.hash), THIRD);
  await tab.reload();
  await result(tab, 60);
  assert.deepEqual(mine.complaints, []);
});

test("two tabs show the clicks of both, and one finishes with Semel what a closed one has left", LIMIT, async (t) => {
  const mine = await visitor(t);
  const one = await mine.open("/#lose-requests=0");
  const two = await mine.open("/#lose-requests=0");
  const click = async (tab, times) => {
    for (let made = 0; made < times; made += 1) await tab.locator("#deposit").click();
  };
  await click(one, 3);
  await click(two, 2);
  for (const tab of [one, two]) {
    await result(tab, 5);
    assert.equal(await text(tab, "balance-semel"), "$50");
    const { rows } = await timeline(tab);
    const other = tab === one ? 2 : 1;
    assert.deepEqual(rows.map(({ head }) => Number(/, tab (\d)/.exec(head)?.[1] ?? 3 - other)), [1, 1, 1, 2, 2]);
  }
  // The second tab finishes what the first can't.
  await one.locator("#offline").click();
  await click(one, 2);
  await until(async () => (await timeline(two)).rows.length === 7, "the second tab shows the clicks of the first");
  await one.close();
  await result(two, 7);
  assert.equal(await text(two, "balance-semel"), "$70");
  assert.equal(await text(two, "balance-naive"), "$50");
  assert.match(await text(two, "rows"), /Tab 1 is gone, and tab 2 goes on: 2 deposits unfinished\. Semel goes on with them; fetch with retries has forgotten its 2\./);
  assertAgrees(await timeline(two), await accounts(two, url));
  assert.deepEqual(mine.complaints, []);
});

test("attempts that are offline, late or sent twice are each drawn as what they were", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open("/#offline=1");
  await tab.locator("#deposit").click();
  await until(async () => (await timeline(tab)).marks.size >= 4, "both clients try");
  for (const { fate, words } of (await timeline(tab)).marks.values()) assert.match(`${fate}: ${words}`, /^(sent|lost): .*(sent|lost, offline)$/);
  await tab.locator("#offline").click();
  await result(tab, 1);
  // The copy may arrive after the answer.
  await tab.goto(`${url}/#twice=100`);
  await tab.locator("#deposit").click();
  await result(tab, 2);
  await until(async () => (await accounts(tab, url)).semel.logged.size === 3, "the copy arrived");
  await tab.goto(`${url}/#delay=4000&run=20`);
  await result(tab, 22);
  await until(async () => [...(await timeline(tab)).marks.values()].every(({ fate }) => fate !== "sent"), "nothing is on its way");
  const server = await accounts(tab, url);
  assert.deepEqual([server.semel.balance, server.semel.entries], [220, 22]);
  const drawn = await timeline(tab);
  assertAgrees(drawn, server);
  assert.ok([...drawn.marks.values()].some(({ lane, fate }) => lane === "semel" && fate === "late"));
  assert.deepEqual(mine.complaints, []);
});

test("after a run all outcomes are acknowledged, and the plot shows a tombstone for each", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open("/#lose-requests=0&run=40");
  await result(tab, 40);
  await until(async () => /^0 outcomes kept$/.test(await text(tab, "plot-records")), "all outcomes are acknowledged");
  assert.equal(await text(tab, "plot-tombstones"), "40 tombstones");
  assert.ok((await tab.locator("#plot canvas").count()) === 1);
});

test("an empty plot has an axis of some seconds, labelled with two decimals at most", LIMIT, async (t) => {
  const mine = await visitor(t);
  await mine.before(() => {
    const { fillText } = CanvasRenderingContext2D.prototype;
    window.drawn = [];
    CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
      window.drawn.push(text);
      return fillText.call(this, text, ...place);
    };
  });
  const tab = await mine.open("/");
  const seconds = await until(() => tab.evaluate(() => window.drawn.some((text) => / s$/.test(text)) && window.drawn.filter((text) => / s$/.test(text))), "there is an axis");
  assert.ok(seconds.includes("5 s") && seconds.every((text) => /^\d(\.\d\d?)? s$/.test(text)), seconds.join());
});

test("a server that only takes long is called silent, and then answering again", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.page();
  let hung;
  const asked = new Promise((resolve) => (hung = resolve));
  await tab.route("**/lab/accounts/**", hung);
  await tab.goto(url);
  await asked;
  assert.equal(await until(() => text(tab, "open-clicked"), "it is said that nothing is heard"), "the server is silent");
  await tab.unroute("**/lab/accounts/**");
  assert.equal(await until(() => text(tab, "told"), "it is said that it is heard again"), "The server answers again.");
});

test("the page is interactive in under a second, and can be used by keyboard alone", LIMIT, async (t) => {
  const times = [];
  let tab;
  // Each time is a first visit: nothing of the page is cached, and there is no database.
  for (let load = 0; load < 3; load += 1) {
    const mine = await visitor(t);
    await mine.before(watchShifts);
    tab = await mine.open();
    times.push(await until(() => tab.evaluate(() => performance.getEntriesByName("lab-interactive")[0]?.startTime), "the page is interactive"));
  }
  // The fastest counts, because the machine may be busy with other things.
  assert.ok(Math.min(...times) < 1000, `it took ${times} ms`);
  t.diagnostic(`interactive after ${times.map(Math.round)} ms`);
  const focused = () => tab.evaluate(() => document.activeElement.id);
  const reach = async (id) => {
    for (let pressed = 0; (await focused()) !== id; pressed += 1) {
      assert.ok(pressed < 60, `${id} can be reached by Tab`);
      await tab.keyboard.press("Tab");
    }
  };
  await reach("deposit");
  await tab.keyboard.press("Enter");
  await reach("loseRequests");
  await tab.keyboard.press("ArrowRight");
  assert.equal(await text(tab, "loseRequests-value"), "34 %");
  await reach("offline");
  await tab.keyboard.press("Space");
  assert.match(await tab.evaluate(() => location.hash), /lose-requests=34.*offline=1/);
  await tab.keyboard.press("Space");
  await result(tab, 1);
  assert.deepEqual(await tab.evaluate(() => window.shifts), []);
});

test("going back through the page by keyboard, nothing that has the focus is left behind the score, which stays in sight", LIMIT, async (t) => {
  for (const viewport of [{ width: 1280, height: 600 }, { width: 360, height: 640 }]) {
    const mine = await visitor(t, { viewport });
    const tab = await mine.open("/");
    await tab.locator(".text pre").focus();
    const reached = new Set();
    while (!reached.has("deposit")) {
      await tab.keyboard.press("Shift+Tab");
      const { id, cover } = await tab.evaluate(() => {
        const focused = document.activeElement;
        const { left, top, width, height } = focused.getBoundingClientRect();
        // What is higher than the window has no place where all of it is in sight.
        const there = document.elementFromPoint(left + width / 2, height > 300 ? innerHeight / 2 : top + Math.min(height / 2, 10));
        return { id: focused.id || focused.textContent, cover: focused.contains(there) ? undefined : there?.closest(".score")?.className };
      });
      assert.equal(cover, undefined, `${id} at ${viewport.width} px`);
      assert.ok(reached.size < 60, [...reached].join());
      reached.add(id);
    }
    for (const id of ["scroll", "wrong", "offline", "delay", "twice", "loseRequests"]) assert.ok(reached.has(id), id);
  }
});

test("a link sets the scenario within limits, and starting over moves both tabs to a new account", LIMIT, async (t) => {
  const mine = await visitor(t);
  const tab = await mine.open("/#lose-requests=5000&delay=x&twice=-3&unknown=1");
  assert.equal(await text(tab, "loseRequests-value"), "90 %", "what is too large is brought into the limits");
  assert.deepEqual([await text(tab, "delay-value"), await text(tab, "twice-value")], ["none", "none"]);
  await tab.locator("[data-preset=answers]").click();
  await result(tab, 100);
  assert.equal(await text(tab, "loseAnswers-value"), "50 %");
  const other = await mine.open();
  await result(other, 100);
  const before = await tab.evaluate(() => localStorage["semel lab account"]);
  await Promise.all([other.waitForEvent("load"), tab.waitForEvent("load"), tab.locator("#over").click()]);
  for (const page of [tab, other]) {
    await until(async () => (await text(page, "clicked")) === "$0", "nothing is clicked in the new account");
    assert.notEqual(await page.evaluate(() => localStorage["semel lab account"]), before);
  }
  await other.locator("#deposit").click();
  await result(tab, 1);
  assert.deepEqual(mine.complaints, []);
});

test("axe finds nothing serious, in light and dark, on a phone, before and after a run, in the lab and the documents", LIMIT, async (t) => {
  const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  const check = async (tab, what) => {
    // `evaluate` gets past the page's policy, which allows only its own scripts.
    const { violations } = await tab.evaluate(`${axe}; axe.run({ resultTypes: ["violations"] })`);
    const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes[0].html]), [], what);
  };
  for (const [colorScheme, viewport] of [
    ["light", { width: 1280, height: 900 }],
    ["dark", { width: 1280, height: 900 }],
    ["light", { width: 360, height: 740 }],
  ]) {
    const mine = await visitor(t, { colorScheme, viewport });
    const tab = await mine.open("/");
    await check(tab, `${colorScheme}, at first`);
    await tab.goto(`${url}/${THIRD}&run=20`);
    await result(tab, 20);
    await check(tab, `${colorScheme}, after a run`);
    await tab.close();
    for (const path of ["/docs", "/docs/sdk", "/docs/protocol"]) {
      const document = await mine.open(path);
      await check(document, `${colorScheme}, ${path}`);
      assert.ok(await document.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${path} is not wider than the screen`);
    }
    assert.deepEqual(mine.complaints, []);
  }
});

test("on a phone nothing is wider than the screen, and nothing shifts", LIMIT, async (t) => {
  const mine = await visitor(t, { viewport: { width: 360, height: 740 } });
  await mine.before(watchShifts);
  const tab = await mine.open(`/${THIRD}&run=20`);
  await result(tab, 20);
  assert.deepEqual(await tab.evaluate(() => window.shifts), []);
  const wide = await tab.evaluate(() => [...document.querySelectorAll("main *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".wide, pre, .track, .presets")).map(({ id, className }) => id || className));
  assert.deepEqual(wide, []);
  assert.ok(await tab.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  // This is as narrow as a page 1280 wide at a zoom of 400 %.
  await tab.setViewportSize({ width: 320, height: 640 });
  const [part, whole] = await tab.evaluate(() => ["counts", "timeline"].map((name) => document.querySelector(`.${name}`).getBoundingClientRect().right));
  assert.ok(part <= whole, `the counts end at ${part}, and what they are in at ${whole}`);
});

test("every link of the page and the documents leads somewhere", LIMIT, async (t) => {
  const mine = await visitor(t);
  const seen = new Map();
  const anchors = [];
  const next = ["/"];
  for (let path = next.pop(); path !== undefined; path = next.pop()) {
    if (seen.has(path)) continue;
    const tab = await mine.open(path);
    const { ids, hrefs } = await tab.evaluate(() => ({ ids: [...document.querySelectorAll("[id]")].map(({ id }) => id), hrefs: [...document.querySelectorAll("a[href]")].map((a) => a.href) }));
    await tab.close();
    seen.set(path, ids);
    for (const href of hrefs.map((href) => new URL(href)).filter(({ origin }) => origin === url)) {
      if (href.pathname === "/" && href.hash.includes("=")) continue;
      if (href.hash) anchors.push([href.pathname, decodeURIComponent(href.hash.slice(1)), path]);
      next.push(href.pathname);
    }
  }
  assert.ok(seen.size >= 7, [...seen.keys()].join());
  for (const [path, id, from] of anchors) assert.ok(seen.get(path).includes(id), `${from} links to ${path}#${id}`);
  for (const path of seen.keys()) assert.equal((await fetch(url + path)).status, 200, path);
  const readme = await mine.open("/docs");
  assert.deepEqual(await readme.evaluate(() => [...document.images].filter(({ naturalWidth }) => naturalWidth === 0).map(({ src }) => src)), []);
  assert.ok((await readme.locator("main img").count()) > 0);
  assert.deepEqual(mine.complaints, []);
});
