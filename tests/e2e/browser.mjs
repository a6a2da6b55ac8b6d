// A real Chromium for a test file, the pages that it opens, and what they tell.
//
// Invariants:
// - The profile is a temporary folder: it outlives a `kill -9` of the browser, and nothing outlives the test file.

import { spawn } from "node:child_process";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { findBrowser } from "../../scripts/setup/browser.mjs";
import { endWithTests } from "./ending.mjs";
import { stateFolder } from "./folders.mjs";
import { servePages } from "./pages.mjs";

/** What is not among Playwright's own. As root, and in a container, Chromium starts with these. */
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"];

/**
 * Starts Chromium for a test file. `after` is node:test's; `page`: the folder with the test page; `onTold`: is called with what
 * a page tells; `isBare`: as users have it. Else hidden tabs pass for visible ones in focus, so that no timer of a test is slowed
 * down; but such a tab can't be frozen. `isKept`: pages that are left may be kept whole, which needs one that is bare.
 */
export async function browse(after, { page, onTold, isBare = false, isKept } = {}) {
  const executablePath = process.env.SEMEL_CHROMIUM ?? (await findBrowser()).chromium;
  const pages = await servePages({ page, onTold, isKept });
  const profile = await stateFolder("semel-profile-");
  const browser = new Browser(pages, profile, executablePath, isBare ? launchBare : launchTame);
  after(async () => {
    await browser.close();
    await pages.close();
    // A process that was killed a moment ago may still be writing.
    await rm(profile, { recursive: true, force: true, maxRetries: 10 });
  });
  await browser.start();
  return browser;
}

/** Ends the process of a tab, as a crash does. */
export async function crash(tab) {
  const crashed = new Promise((resolve) => tab.once("crash", resolve));
  // It is never loaded.
  tab.goto("chrome://crash").catch(() => {});
  await crashed;
}

class Browser {
  /** Errors that nobody caught, in any page. */
  errors = [];
  /** Errors and warnings on the console, each with its page. */
  complaints = [];
  #pages;
  #profile;
  #executablePath;
  #launch;
  #context;
  #end;

  constructor(pages, profile, executablePath, launch) {
    this.#pages = pages;
    this.#profile = profile;
    this.#executablePath = executablePath;
    this.#launch = launch;
  }

  /** What pages told, in the order of arrival. */
  get told() {
    return this.#pages.told;
  }

  /** Starts it, again on the same profile. */
  async start() {
    [this.#context, this.#end] = await this.#launch(this.#executablePath, this.#profile);
    this.#context.on("weberror", (error) => this.errors.push(error.error()));
    this.#context.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) this.complaints.push({ page: message.page(), text: message.text() });
    });
  }

  /** Opens a page in a new tab: the test page, unless told otherwise. */
  async tab(url = this.#pages.url) {
    const tab = await this.#context.newPage();
    await tab.goto(url);
    return tab;
  }

  offline(offline) {
    return this.#context.setOffline(offline);
  }

  /** `kill -9` of all its processes. */
  async kill() {
    const ended = new Promise((resolve) => this.#context.on("close", resolve));
    const devtools = await this.#context.browser().newBrowserCDPSession();
    const { processInfo } = await devtools.send("SystemInfo.getProcessInfo");
    const first = (process) => (process.type === "browser" ? 0 : 1);
    for (const { id } of processInfo.sort((one, other) => first(one) - first(other))) killNow(id);
    await ended;
  }

  /** What a browser does that runs out of space: throws away all IndexedDB of the profile. It must not run. */
  async evict() {
    // It fails where there is none: then there is nothing to lose.
    await rm(join(this.#profile, "Default", "IndexedDB"), { recursive: true });
  }

  async close() {
    await this.#end?.();
  }
}

/** Starts Chromium with Playwright's settings, and resolves to its context and what ends it. */
async function launchTame(executablePath, profile) {
  const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args: ARGUMENTS });
  return [context, () => context.close()];
}

/** The same, with Chromium's own settings. */
async function launchBare(executablePath, profile) {
  const all = [...ARGUMENTS, "--headless", "--no-first-run", "--remote-debugging-port=0", `--user-data-dir=${profile}`, "about:blank"];
  const child = spawn(executablePath, all, { stdio: ["ignore", "ignore", "pipe"] });
  const isOver = endWithTests(() => child.kill("SIGKILL"));
  const ended = new Promise((resolve) => child.on("close", resolve)).then(isOver);
  let log = "";
  const endpoint = await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.stderr.on("data", (chunk) => {
      log += chunk;
      const [, found] = /DevTools listening on (ws:\S+)\n/.exec(log) ?? [];
      if (found) resolve(found);
    });
    ended.then(() => reject(new Error(`Chromium did not start: ${log}`)));
  });
  const browser = await chromium.connectOverCDP(endpoint, { noDefaults: true });
  const end = async () => {
    const devtools = await browser.newBrowserCDPSession().catch(() => undefined);
    // It ends all its processes, and there may be none any more.
    await devtools?.send("Browser.close").catch(() => {});
    await ended;
  };
  return [browser.contexts()[0], end];
}

function killNow(id) {
  try {
    process.kill(id, "SIGKILL");
  } catch (error) {
    // Some end by themselves as soon as the first is gone.
    if (error.code !== "ESRCH") throw error;
  }
}
