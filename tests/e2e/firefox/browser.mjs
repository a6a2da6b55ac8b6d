// A real Firefox for a test file, with the members of the Chromium of `../browser.mjs` that the scenarios use.
//
// Invariants:
// - The profile is a temporary folder: it outlives a `kill -9` of the browser, and nothing outlives the test file.
// - The browser is a process group of its own, so that all of it is killed at once.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { endWithTests } from "../ending.mjs";
import { until } from "../lossy.mjs";
import { servePages } from "../pages.mjs";
import { startSession } from "./marionette.mjs";

/** It asks nobody for anything, and shows nothing after a crash. */
const PREFERENCES = {
  "marionette.port": 0,
  "app.normandy.enabled": false,
  "browser.sessionstore.resume_from_crash": false,
  "datareporting.policy.dataSubmissionEnabled": false,
  "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false,
  "toolkit.startup.max_resumed_crashes": -1,
};

/** Starts Firefox for a test file: the program at `path`, with `preferences` besides. */
export async function browseFirefox(after, path, preferences) {
  const pages = await servePages();
  const profile = await mkdtemp(join(tmpdir(), "semel-firefox-"));
  const browser = new Firefox(pages, profile, path, { ...PREFERENCES, ...preferences });
  after(async () => {
    await browser.close();
    await pages.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 10 });
  });
  await browser.start();
  return browser;
}

class Firefox {
  #pages;
  #profile;
  #path;
  #preferences;
  #child;
  #ended;
  #session;
  /** The window that it starts with, which stays. */
  #first;
  #isOver;

  constructor(pages, profile, path, preferences) {
    this.#pages = pages;
    this.#profile = profile;
    this.#path = path;
    this.#preferences = preferences;
  }

  get told() {
    return this.#pages.told;
  }

  async start() {
    const lines = Object.entries(this.#preferences).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`);
    await writeFile(join(this.#profile, "user.js"), lines.join(""));
    const portFile = join(this.#profile, "MarionetteActivePort");
    await rm(portFile, { force: true });
    const env = { ...process.env, MOZ_CRASHREPORTER_DISABLE: "1" };
    this.#child = spawn(this.#path, ["--headless", "--no-remote", "--marionette", "--profile", this.#profile], { detached: true, stdio: "ignore", env });
    this.#ended = new Promise((resolve, reject) => this.#child.on("exit", resolve).on("error", reject));
    this.#isOver = endWithTests(() => this.#killGroup());
    const port = await until(async () => Number(await readFile(portFile, "utf8").catch(() => 0)), "Firefox listens", 60_000);
    this.#session = await startSession(port);
    this.#first = (await this.#session.inTurn((send) => send("WebDriver:GetWindowHandle", {}))).value;
  }

  /** Opens the test page in a new tab. */
  async tab() {
    const session = this.#session;
    const { handle } = await session.inTurn(async (send) => {
      // The current window may be closed.
      await send("WebDriver:SwitchToWindow", { handle: this.#first, focus: false });
      return send("WebDriver:NewWindow", { type: "tab", focus: false });
    });
    const tab = new Tab(session, handle, () => session === this.#session);
    await tab.goto(this.#pages.url);
    return tab;
  }

  /** `kill -9` of all its processes. */
  async kill() {
    const session = this.#session;
    this.#session = undefined;
    this.#killGroup();
    await this.#ended;
    this.#isOver();
    session.close();
  }

  async close() {
    if (this.#session) await this.kill();
  }

  #killGroup() {
    process.kill(-this.#child.pid, "SIGKILL");
  }
}

class Tab {
  #session;
  #handle;
  #lives;
  #isClosed = false;

  constructor(session, handle, lives) {
    this.#session = session;
    this.#handle = handle;
    this.#lives = lives;
  }

  #within(work) {
    return this.#session.inTurn(async (send) => {
      await send("WebDriver:SwitchToWindow", { handle: this.#handle, focus: false });
      return work(send);
    });
  }

  goto(url) {
    return this.#within((send) => send("WebDriver:Navigate", { url }));
  }

  reload() {
    return this.#within((send) => send("WebDriver:Refresh", {}));
  }

  /** What a function returns in the page, or what its promise gives. */
  async evaluate(work, argument) {
    const source = `Promise.resolve(${JSON.stringify(argument) ?? "undefined"}).then(${work}).then((value) => JSON.stringify({ value }), (error) => JSON.stringify({ error: String(error) }))`;
    const script = "const done = arguments[1]; window.eval(arguments[0]).then(done);";
    const answered = await this.#within((send) => send("WebDriver:ExecuteAsyncScript", { script, args: [source] }));
    const { value, error } = JSON.parse(answered.value);
    if (error !== undefined) throw new Error(error);
    return value;
  }

  /** One whose browser was killed is closed. */
  async close() {
    if (this.#isClosed || !this.#lives()) return;
    this.#isClosed = true;
    await this.#within((send) => send("WebDriver:CloseWindow", {}));
  }
}
