// A real Chromium for a test file, the pages that it opens, and what they tell.
//
// Invariants:
// - The profile is a temporary folder: it outlives a `kill -9` of the browser, and nothing outlives the test file.
// - Pages come from a server of their own, so that the worker is of another origin and CORS is in force.
// - What a page tells is a request that it awaits: what has not arrived here was not told.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { findBrowser } from "../../scripts/setup/browser.mjs";
import { ROOT } from "../../scripts/setup/paths.mjs";

/** What is not among Playwright's own. As root, and in a container, Chromium starts with these. */
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"];
const PAGE = fileURLToPath(new URL("page", import.meta.url));
const SDK = join(ROOT, "sdk/npm");
/** What the SDK is made of, for tests of its parts. */
const PARTS = join(ROOT, "sdk/js");
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".wasm": "application/wasm",
};

/**
 * Starts Chromium for a test file. `after` is node:test's; `page`: the folder with the test page; `onTold`: is called with what
 * a page tells; `isBare`: as users have it. Else hidden tabs pass for visible ones in focus, so that no timer of a test is slowed
 * down; but such a tab can't be frozen.
 */
export async function browse(after, { page = PAGE, onTold, isBare = false } = {}) {
  const executablePath = process.env.SEMEL_CHROMIUM ?? (await findBrowser()).chromium;
  const pages = await servePages({ page, sdk: SDK, js: PARTS }, onTold);
  const profile = await mkdtemp(join(tmpdir(), "semel-profile-"));
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
  const ended = new Promise((resolve) => child.on("close", resolve));
  let log = "";
  const endpoint = await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.stderr.on("data", (chunk) => {
      log += chunk;
      const [, found] = /DevTools listening on (ws:\S+)/.exec(log) ?? [];
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

/** Serves the test page and the SDK as it is packed, and keeps what is posted to `/tell`. */
async function servePages(folders, onTold) {
  const told = [];
  const server = createServer(async (request, response) => {
    if (request.method === "POST" && request.url === "/tell") {
      let text = "";
      try {
        for await (const chunk of request) text += chunk;
      } catch {
        return; // The page is gone, and has told nothing.
      }
      told.push(JSON.parse(text));
      onTold?.(told.at(-1));
      return response.writeHead(204).end();
    }
    const path = fileOf(folders, request.url);
    const content = path && (await readFile(path).catch(() => undefined));
    if (content === undefined) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream", "cache-control": "no-store" }).end(content);
  });
  await new Promise((resolve, reject) => server.on("error", reject).listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/page/index.html`,
    told,
    close() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      return closed;
    },
  };
}

/** The file of `/page/…`, `/sdk/…` or `/js/…`; undefined outside of their folders. */
function fileOf(folders, url) {
  const [, name, rest] = /^\/(page|sdk|js)\/([\w./-]+)$/.exec(url) ?? [];
  if (name === undefined) return undefined;
  const path = join(folders[name], rest);
  return path.startsWith(folders[name] + sep) ? path : undefined;
}
