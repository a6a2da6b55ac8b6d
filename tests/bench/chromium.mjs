// Measures in a page what the SDK adds in Chromium to a request and to the store's write.

import { browse } from "../e2e/browser.mjs";
import { interleaved, median } from "./rounds.mjs";

export const PAGE = new URL("page", import.meta.url).pathname;

/**
 * Resolves to ms by side: `semel`, `bound`, `fetch`, `store`, and `both` (a write of the store, then a fetch); and `beyond` and `boundBeyond`, which
 * are `semel` and `bound` minus `both`.
 */
export async function inChromium(after, url, { rounds, calls }) {
  const browser = await browse(after, { page: PAGE });
  const tab = await browser.tab();
  await tab.waitForFunction(() => window.bench !== undefined);
  await tab.evaluate((to) => window.bench.open(to), url);
  const side = (name) => [name, () => tab.evaluate(([one, many]) => window.bench.timed(one, many), [name, calls])];
  const each = await interleaved(Object.fromEntries(["semel", "both", "bound", "fetch", "store"].map(side)), rounds);
  const medians = Object.fromEntries(Object.entries(each).map(([name, all]) => [name, median(all)]));
  // Subtracted round by round, because whatever slows the machine for a while slows all sides.
  const beyond = (name) => median(each[name].map((ms, round) => ms - each.both[round]));
  return { ...medians, beyond: beyond("semel"), boundBeyond: beyond("bound") };
}
