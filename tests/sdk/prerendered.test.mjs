// Tests a prerendered page: the browser grants it no lock until it is shown. Here the test grants the locks. Once the page asks for one, time runs a
// thousand times as fast. It doesn't before, because what comes before has a deadline, which a busy machine must not miss.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { browse } from "../e2e/browser.mjs";

const LIMIT = { timeout: 30_000 };
const browser = await browse(after, { page: fileURLToPath(new URL("page", import.meta.url)) });

test("an outbox on a prerendered page opens once the page is shown, however late that is", LIMIT, async (t) => {
  const tab = await browser.tab();
  t.after(() => tab.close());
  await tab.waitForFunction(() => window.lab);
  await tab.evaluate(() => {
    const { setTimeout } = window;
    const request = navigator.locks.request.bind(navigator.locks);
    const shown = new Promise((resolve) => (window.show = resolve)).then(() => (window.setTimeout = setTimeout));
    navigator.locks.request = async (...asked) => {
      window.setTimeout = (act, ms, ...more) => setTimeout(act, ms / 1000, ...more);
      window.isAsked = true;
      await shown;
      return request(...asked);
    };
    const fetch = async (url) => {
      const status = url.includes("/health") ? "read" : "executed";
      return new Response("done", { headers: { "semel-now": String(Date.now()), "semel-status": status, "semel-key": '"a"' } });
    };
    window.opened = lab.outbox({ identity: "prerendered", fetch });
    window.state = "waits";
    window.opened.then(() => (window.state = "open"), (error) => (window.state = String(error)));
  });
  await tab.waitForFunction(() => window.isAsked);
  const minute = () => tab.evaluate(() => new Promise((resolve) => setTimeout(resolve, 60_000)));
  for (let passed = 0; passed < 10; passed += 1) await minute();
  assert.equal(await tab.evaluate(() => window.state), "waits");
  const status = await tab.evaluate(async () => {
    window.show();
    const semel = await window.opened;
    const { status } = await semel.fetch("/things", { method: "POST" });
    await semel.close();
    return status;
  });
  assert.equal(status, 200);
});
