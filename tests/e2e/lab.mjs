// The lab's page in Chromium, for a test file: opened as a visitor does, and read as it is shown.
//
// Invariants:
// - Each visitor has a browser context, and so an account, a journal and an outbox that nobody else has.
// - Tests read the page as it is drawn, and the server's own accounts and log, which they ask for without the page.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { findBrowser } from "../../scripts/setup/browser.mjs";
import { until } from "./lossy.mjs";

const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
/** What the browser itself says about a request that failed in the network or at the server. These are the lab's faults, not the page's. */
const OF_THE_NETWORK = /^Failed to load resource: /;
const STATUSES = { executed: "executed", again: "executed", replayed: "replayed", late: "attempt-expired" };

/** Starts Chromium for a test file. `after` is node:test's. */
export async function labs(after, url) {
  const browser = await chromium.launch({ executablePath: process.env.SEMEL_CHROMIUM ?? (await findBrowser()).chromium, args: ARGUMENTS });
  after(() => browser.close());
  return {
    /** Makes a visitor with a browser context. `options`: of the context. */
    async visitor(t, options = {}) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
      t.after(() => context.close());
      return new Visitor(context, url);
    },
  };
}

class Visitor {
  /** Errors and warnings on the console of any tab, and uncaught errors. */
  complaints = [];
  #context;
  #url;

  constructor(context, url) {
    this.#context = context;
    this.#url = url;
    context.on("weberror", (error) => this.complaints.push(String(error.error())));
    context.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !OF_THE_NETWORK.test(message.text())) this.complaints.push(message.text());
    });
  }

  /** Opens the lab, or another page, in a new tab. */
  async open(path = "/") {
    const tab = await this.page();
    await tab.goto(this.#url + path);
    return tab;
  }

  /** Opens an empty tab. */
  page() {
    return this.#context.newPage();
  }

  /** Makes a script run in each page before the page's own. */
  before(script) {
    return this.#context.addInitScript(script);
  }
}

export const text = (tab, id) => tab.locator(`#${id}`).textContent();

/** Resolves once the page says that nothing is under way, to what it says. */
export async function result(tab, clicks, timeoutMs = 60_000) {
  const says = new RegExp(`^${clicks} deposits?, `);
  return until(async () => says.test(await text(tab, "told")) && text(tab, "told"), `the page tells the result of ${clicks} clicks`, timeoutMs).catch(async (error) => {
    throw new Error(`${error.message}; it says: ${await text(tab, "told")}; ${await text(tab, "progress-text")}`);
  });
}

/** Resolves to a visitor's account at the server: `{ balance, entries, logged }` by lane. `logged` maps attempts to their status. */
export async function accounts(tab, url) {
  const account = await tab.evaluate(() => localStorage["semel lab account"]);
  const read = async (lane) => {
    const logged = new Map();
    for (let after = 0; ; ) {
      const answer = await fetch(`${url}/lab/accounts/${account}/${lane}?after=${after}`);
      assert.equal(answer.status, 200);
      const { attempts, last, balance, entries } = await answer.json();
      for (const { attempt, status } of attempts) logged.set(attempt, status);
      if (attempts.length === 0) return { balance, entries, logged };
      after = last;
    }
  };
  return { naive: await read("naive"), semel: await read("semel") };
}

/** Resolves to what the timeline shows. `marks` maps the id of each attempt to `{ lane, fate }`; `rows` has the row of each click. */
export function timeline(tab) {
  return tab
    .evaluate(() => {
      const marks = [];
      const rows = [];
      for (const row of document.querySelectorAll("#rows tr[data-click]")) {
        const lanes = {};
        for (const cell of row.querySelectorAll("td.lane")) {
          const { lane, kind, executed } = cell.dataset;
          lanes[lane] = { kind, executed: Number(executed), text: cell.querySelector(".result").textContent };
          for (const mark of cell.querySelectorAll("li")) for (const [id, fate] of mark.dataset.attempts.split(" ").map((attempt) => attempt.split("="))) marks.push([id, { lane, fate, words: mark.title }]);
        }
        rows.push({ click: Number(row.dataset.click), head: row.querySelector("th").textContent, ...lanes });
      }
      return { marks, rows };
    })
    .then(({ marks, rows }) => ({ marks: new Map(marks), rows, count: marks.length }));
}

/**
 * Checks that every drawn attempt has the fate that the server logged, that every logged attempt is drawn, and that the others never reached the
 * server.
 */
export function assertAgrees({ marks, count }, { naive, semel }) {
  assert.equal(marks.size, count, "no attempt is drawn twice");
  const logged = new Map([...naive.logged, ...semel.logged]);
  for (const [id, { fate, words }] of marks) {
    if (fate === "lost") assert.equal(logged.get(id), undefined, `${id} is drawn as lost: ${words}`);
    else if (fate === "refused") assert.ok(logged.has(id), `${id} is drawn as refused`);
    else assert.equal(logged.get(id), STATUSES[fate], `${id} is drawn as ${fate}: ${words}`);
  }
  for (const [id, status] of logged) assert.ok(marks.has(id), `${id} was ${status} and is not drawn`);
  for (const [lane, account] of Object.entries({ naive, semel })) {
    const executed = [...marks.values()].filter((mark) => mark.lane === lane && ["executed", "again"].includes(mark.fate)).length;
    assert.equal(executed, account.entries, `${lane}: as many executed attempts are drawn as the account has entries`);
  }
}
