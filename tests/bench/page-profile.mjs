// What the time of a call of `semel.fetch` is spent on in a page: a CPU profile of the page's thread, by V8's profiler; and the profile of the same
// request and one write of the store without the SDK.

import { browse } from "../e2e/browser.mjs";
import { PAGE } from "./chromium.mjs";
import { usBy } from "./profile.mjs";

const INTERVAL_US = 100;
const WARM_UP_CALLS = 200;
const SHOWN = 16;

/** Resolves to lines of text. */
export async function pageProfile(after, url, calls) {
  const lines = [];
  const browser = await browse(after, { page: PAGE });
  const tab = await browser.tab();
  await tab.waitForFunction(() => window.bench !== undefined);
  await tab.evaluate((to) => window.bench.open(to), url);
  const timed = (side, many) => tab.evaluate((both) => window.bench.timed(...both), [side, many]);
  const devtools = await tab.context().newCDPSession(tab);
  await devtools.send("Profiler.enable");
  await devtools.send("Profiler.setSamplingInterval", { interval: INTERVAL_US });
  for (const [side, what] of [["both", "a write of the store, and then fetch"], ["semel", "semel.fetch"]]) {
    await timed(side, WARM_UP_CALLS);
    await devtools.send("Profiler.start");
    const ms = await timed(side, calls);
    const { profile } = await devtools.send("Profiler.stop");
    lines.push("", `in Chromium, ${what}: ${ms.toFixed(2)} ms a call, of which the page's thread takes, in µs:`);
    for (const [name, us] of usBy(profile, nameOf).slice(0, SHOWN)) lines.push(`${(us / calls).toFixed(1).padStart(8)} µs  ${name}`);
  }
  return lines;
}

/** The browser's functions have names. The SDK's have none in what ships, so they are named by whose they are. */
function nameOf({ functionName, url }) {
  if (url.startsWith("wasm:")) return "the SDK, in Rust";
  if (url.includes("/sdk/")) return "the SDK, in JavaScript";
  if (url.includes("/js/")) return "the store, in JavaScript";
  return url === "" ? functionName : "the page";
}
