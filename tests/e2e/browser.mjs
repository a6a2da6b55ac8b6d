// A real Chromium for a test file: its pages, and what they tell.
//
// Invariant: the profile is a temporary folder. It survives a `kill -9` of the browser, and nothing is left after the test file.

import { spawn } from "node:child_process";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { findBrowser } from "../../scripts/setup/browser.mjs";
import { endWithTests } from "./ending.mjs";
import { stateFolder } from "./folders.mjs";
import { servePages } from "./pages.mjs";

/** Arguments that Playwright does not set itself. Chromium needs them to start as root and in a container. */
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"];

/**
 * Starts Chromium for a test file. `after` is node:test's. `page`: the folder of the test page. `onTold`: called with whatever a page tells.
 * `isBare`: as users have it. Otherwise hidden tabs count as visible and focused, so that the browser slows down no timer of a test; but such a tab
 * can't be frozen. `isKept`: the browser may keep a page that was left, to show it again. For that, it must be bare.
 */
export async function browse(after, { page, onTold, isBare = false, isKept } = {}) {
  const executablePath = process.env.SEMEL_CHROMIUM ?? (await findBrowser()).chromium;
  const pages = await servePages({ page, onTold, isKept });
  const profile = await stateFolder("semel-profile-");
  const browser = new Browser(pages, profile, executablePath, isBare ? launchBare : launchTame);
  after(async () => {
    await browser.close();
    await pages.close();
    // A process that was just killed may still be writing.
    await rm(profile, { recursive: true, force: true, maxRetries: 10 });
  });
  await browser.start();
  return browser;
}

/** Ends the process of a tab, as a crash does. */
export async function crash(tab) {
  const crashed = new Promise((resolve) => tab.once("crash", resolve));
  // This page never finishes loading.
  tab.goto("chrome://crash").catch(() => {});
  await crashed;
}

class Browser {
  /** Uncaught errors of all pages. */
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

  /** Starts the browser; later again, on the same profile. */
  async start() {
    [this.#context, this.#end] = await this.#launch(this.#executablePath, this.#profile);
    this.#context.on("weberror", (error) => this.errors.push(error.error()));
    this.#context.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) this.complaints.push({ page: message.page(), text: message.text() });
    });
  }

  /** Opens a page in a new tab: the test page by default. */
  async tab(url = this.#pages.url) {
    const tab = await this.#context.newPage();
    await tab.goto(url);
    return tab;
  }

  offline(offline) {
    return this.#context.setOffline(offline);
  }

  /** Does `kill -9` to all its processes. */
  async kill() {
    const ended = new Promise((resolve) => this.#context.on("close", resolve));
    const devtools = await this.#context.browser().newBrowserCDPSession();
    const { processInfo } = await devtools.send("SystemInfo.getProcessInfo");
    const first = (process) => (process.type === "browser" ? 0 : 1);
    for (const { id } of processInfo.sort((one, other) => first(one) - first(other))) killNow(id);
    await ended;
  }

  /** Deletes all IndexedDB of the profile, as a browser does that runs out of space. Call it while the browser is not running. */
  async evict() {
    // It throws if there is none: then the test has nothing to lose.
    await rm(join(this.#profile, "Default", "IndexedDB"), { recursive: true });
  }

  async close() {
    await this.#end?.();
  }
}

/** Starts Chromium with Playwright's settings. Resolves to its context, and to what ends it. */
async function launchTame(executablePath, profile) {
  const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args: ARGUMENTS });
  return [context, () => context.close()];
}

/** The same with Chromium's own settings. */
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
    // Ends all processes of the browser. They may all be gone already.
    await devtools?.send("Browser.close").catch(() => {});
    await ended;
  };
  return [browser.contexts()[0], end];
}

function killNow(id) {
  try {
    process.kill(id, "SIGKILL");
  } catch (error) {
    // Some end on their own as soon as the first one is gone.
    if (error.code !== "ESRCH") throw error;
  }
}
