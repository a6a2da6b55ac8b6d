// Opens the inspector in Chromium over the made-up deployment, as an administrator does, and reads what it shows.

import { WWW_FOLDER } from "../../scripts/setup/www.mjs";
import { labs } from "../e2e/lab.mjs";
import { until } from "../e2e/lossy.mjs";
import { TOKEN, startFake } from "./fake.mjs";

/** Starts a deployment and a browser for a test file. `after` is the one of node:test. */
export async function inspect(after, options = {}) {
  const fake = await startFake(after, { folder: WWW_FOLDER, ...options });
  const { visitor } = await labs(after, fake.url);
  return {
    fake,
    visitor,
    /** Opens the inspector at a fragment, signed in. `options` are those of a browser context. */
    async open(t, fragment = "", options = {}) {
      const mine = await visitor(t, { timezoneId: "UTC", ...options });
      await mine.before(`location.protocol === "http:" && sessionStorage.setItem("semel administration token", ${JSON.stringify(TOKEN)})`);
      const tab = await mine.open(`/inspector${fragment}`);
      return { mine, tab };
    },
  };
}

export const at = (key, id) => `#${new URLSearchParams({ key, ...(id !== undefined && { id }) })}`;

/** The rows of the list that is shown, each as the texts of its cells. */
export const rows = (tab) => tab.evaluate(() => [...document.querySelectorAll(".page [role=row]")].map((row) => [...row.children].map(({ textContent }) => textContent)));

/** Waits until the page shows a text. */
export const shows = (tab, text) => tab.getByText(text).first().waitFor({ timeout: 10_000 });

/** Waits until at least `count` rows are shown. */
export const hasRows = (tab, count) => until(async () => (await tab.locator(".page [role=row]").count()) >= count, `${count} rows`);

/** Waits until the page is that of a key or a record. The page before is shown until the address has been followed. */
export const isOf = (tab, name) => until(async () => (await tab.locator("h1 code").textContent()) === name, name);

/**
 * The field that chooses the state of a key's records. The list of keys has links of the same name, and is still shown until a click on a key has
 * been followed.
 */
export const stateField = (tab) => tab.getByRole("combobox", { name: "State" });
