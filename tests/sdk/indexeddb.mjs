// Tabs in Chromium for tests of the store in IndexedDB by itself, each with `window.lab` of `page/page.js`.

import { fileURLToPath } from "node:url";
import { browse } from "../e2e/browser.mjs";

/** Starts a browser for a test file. `after` is the one of node:test. */
export async function tabs(after) {
  const browser = await browse(after, { page: fileURLToPath(new URL("page", import.meta.url)) });
  let databases = 0;

  async function tabOf(t) {
    const tab = await browser.tab();
    t.after(() => tab.close());
    await tab.waitForFunction(() => window.lab);
    return { tab };
  }

  /** A tab, and the name of a database that only this test uses. */
  async function opened(t) {
    databases += 1;
    const name = `store ${databases}`;
    return { name, ...(await tabOf(t)) };
  }

  return { tabOf, opened };
}
