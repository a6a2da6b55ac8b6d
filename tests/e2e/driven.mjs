// A browser that is controlled by WebDriver commands. It has those members of the Chromium in `browser.mjs` that the scenarios use.
//
// Invariants:
// - The profile is a temporary folder. It survives a `kill -9` of the browser, and nothing is left after the test file.
// - A session has one current window. So each operation first switches to its window, and no other operation comes in between.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./lossy.mjs";
import { servePages } from "./pages.mjs";

/**
 * Starts one for a test file. `launch` gets the folder of the profile. It resolves to `send(command, parameters)`, which resolves to the command's
 * result, and to `kill()`, which resolves once all processes are gone.
 */
export async function drive(after, launch) {
  const pages = await servePages();
  const profile = await mkdtemp(join(tmpdir(), "semel-driven-"));
  const browser = new Driven(pages, () => launch(profile));
  after(async () => {
    await browser.close();
    await pages.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 10 });
  });
  await browser.start();
  return browser;
}

class Driven {
  #pages;
  #launch;
  #session;

  constructor(pages, launch) {
    this.#pages = pages;
    this.#launch = launch;
  }

  get told() {
    return this.#pages.told;
  }

  /** Starts the browser; later again, on the same profile. */
  async start() {
    const { send, kill } = await this.#launch();
    let last = Promise.resolve();
    /** Runs `work` once earlier ones are done, so that its commands don't mix with others. */
    const inTurn = (work) => {
      const own = last.then(() => work(send));
      last = own.catch(() => {});
      return own;
    };
    // The window that the browser starts with stays open.
    const first = await inTurn((send) => send("GetWindowHandle"));
    this.#session = { inTurn, kill, first };
  }

  /** Opens the test page in a new tab. */
  async tab() {
    const session = this.#session;
    const { handle } = await session.inTurn(async (send) => {
      // The current window may be closed.
      await send("SwitchToWindow", { handle: session.first, focus: false });
      return send("NewWindow", { type: "tab", focus: false });
    });
    const tab = new Tab(session, handle, () => session === this.#session);
    await tab.goto(this.#pages.url);
    return tab;
  }

  /** Does `kill -9` to all its processes. */
  async kill() {
    const { kill } = this.#session;
    this.#session = undefined;
    await kill();
  }

  async close() {
    if (this.#session) await this.kill();
  }
}

class Tab {
  #session;
  #handle;
  #lives;
  #isFrame;
  #isClosed = false;

  constructor(session, handle, lives, isFrame = false) {
    this.#session = session;
    this.#handle = handle;
    this.#lives = lives;
    this.#isFrame = isFrame;
  }

  #within(work) {
    return this.#session.inTurn(async (send) => {
      await send("SwitchToWindow", { handle: this.#handle, focus: false });
      if (this.#isFrame) await send("SwitchToFrame", { id: 0 });
      return work(send);
    });
  }

  async goto(url) {
    await this.#within((send) => send("Navigate", { url }));
    // In a new window, WebKit may report the load of the empty page instead of this one's.
    await until(() => this.look((url) => location.href === url && document.readyState === "complete", url).catch(() => false), "the page is loaded");
  }

  /** Goes back to the previous page, which may be shown again as it was. */
  back() {
    return this.#within((send) => send("Back"));
  }

  async reload() {
    await this.look(() => void (document.documentElement.dataset.isOld = "yes"));
    await this.#within((send) => send("Refresh"));
    // WebKit may answer before the page's modules have run.
    await until(() => this.look(() => !document.documentElement.dataset.isOld && document.readyState === "complete").catch(() => false), "the page is loaded again");
  }

  /** Puts a page into this one, as its only frame. Resolves to the frame, which ends with this page. */
  async frame(url) {
    await this.evaluate((src) => void document.body.append(Object.assign(document.createElement("iframe"), { src })), url);
    const frame = new Tab(this.#session, this.#handle, this.#lives, true);
    await until(() => frame.evaluate((url) => location.href === url && document.readyState === "complete", url).catch(() => false), "the frame is loaded");
    return frame;
  }

  /** Resolves to what a function returns in the page, or to what its promise resolves to. */
  async evaluate(work, argument) {
    const source = `Promise.resolve(${JSON.stringify(argument) ?? "undefined"}).then(${work}).then((value) => JSON.stringify({ value }), (error) => JSON.stringify({ error: String(error) }))`;
    return this.#run("const done = arguments[1]; window.eval(arguments[0]).then(done);", source);
  }

  /** The same for a function that needs only the document: the driver can run it even if the page's policy forbids `eval`. */
  look(work, argument = null) {
    return this.#run(`const done = arguments[1]; Promise.resolve(arguments[0]).then(${work}).then((value) => done(JSON.stringify({ value })), (error) => done(JSON.stringify({ error: String(error) })));`, argument);
  }

  async #run(script, argument) {
    const { value, error } = JSON.parse(await this.#within((send) => send("ExecuteAsyncScript", { script, args: [argument] })));
    if (error !== undefined) throw new Error(error);
    return value;
  }

  /** Resolves to a picture of the tab, as a PNG in base64. */
  screenshot() {
    return this.#within((send) => send("TakeScreenshot"));
  }

  /** Closes the tab. A tab whose browser was killed is closed already. */
  async close() {
    if (this.#isClosed || !this.#lives()) return;
    this.#isClosed = true;
    await this.#within((send) => send("CloseWindow"));
  }
}
