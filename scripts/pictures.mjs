// `npm run pictures`: takes the pictures that the README shows.
//
// The lab's pictures come from a server with an empty state: each shows a run of 100 clicks with a third of everything lost, so the numbers differ
// each time. The inspector's picture shows the tests' made-up deployment, with a million rows at one key, and is always the same.

import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findBrowser } from "./setup/browser.mjs";
import { installPackages } from "./setup/packages.mjs";
import { ROOT } from "./setup/paths.mjs";
import { main, step } from "./setup/step.mjs";
import { buildWorker, workerFolder } from "./setup/worker.mjs";
import { WWW_FOLDER, buildWww } from "./setup/www.mjs";

const FOLDER = join(ROOT, "docs/images");
const SCENARIO = "#lose-requests=33&lose-answers=33&run=100";
const RESULT_TIMEOUT_MS = 60_000;
const INSPECTOR = { colorScheme: "light", viewport: { width: 1200, height: 860 }, timezoneId: "UTC" };
const PICTURES = {
  "lab-light": { colorScheme: "light", viewport: { width: 1200, height: 1220 } },
  "lab-dark": { colorScheme: "dark", viewport: { width: 1200, height: 1220 } },
  "lab-phone": { colorScheme: "light", viewport: { width: 390, height: 1000 } },
};

await main(async () => {
  await step("npm packages", installPackages);
  await buildWorker("ledger");
  await buildWww();
  const { chromium } = await import("playwright-core");
  const { supervise } = await import("./setup/supervise.mjs");
  const { chromium: executablePath } = await findBrowser();
  const state = await mkdtemp(join(tmpdir(), "semel-pictures-"));
  const objects = { SEMEL: "SemelObject", NAIVE: "NaiveObject", REGISTRY: "SemelRegistry" };
  // As in `npm start`, so that the page offers to kill it.
  const server = await supervise({ folder: workerFolder("ledger"), state, objects, vars: { SEMEL_OPEN: "true" }, assets: WWW_FOLDER });
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
  try {
    await mkdir(FOLDER, { recursive: true });
    for (const [name, options] of Object.entries(PICTURES)) await step(name, () => take(browser, server.url, name, options));
    await step("inspector", () => takeInspector(browser));
  } finally {
    await browser.close();
    server.end();
    await server.ended;
    await rm(state, { recursive: true, force: true });
  }
});

async function take(browser, url, name, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  await page.goto(`${url}/${SCENARIO}`);
  await page.locator("#told", { hasText: "100 deposits, " }).waitFor({ timeout: RESULT_TIMEOUT_MS });
  await page.screenshot({ path: join(FOLDER, `${name}.png`) });
  await context.close();
}

async function takeInspector(browser) {
  const { TOKEN, startFake } = await import("../tests/admin/fake.mjs");
  const { HEAVY } = await import("../tests/admin/world.mjs");
  const ends = [];
  const fake = await startFake((end) => ends.push(end), { folder: WWW_FOLDER });
  const context = await browser.newContext(INSPECTOR);
  const page = await context.newPage();
  await page.goto(`${fake.url}/inspector#key=${encodeURIComponent(HEAVY)}`);
  await page.getByLabel("Administration token").fill(TOKEN);
  await page.keyboard.press("Enter");
  await page.locator(".canvas canvas").waitFor();
  await page.mouse.move(0, 0);
  await page.screenshot({ path: join(FOLDER, "inspector.png") });
  await context.close();
  for (const end of ends) await end();
}
