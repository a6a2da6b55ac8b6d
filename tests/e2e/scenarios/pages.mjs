// Scenarios of the pages that people use, in a browser that WebDriver controls: the lab, and the inspector over a made-up deployment.

import assert from "node:assert/strict";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../../scripts/setup/paths.mjs";
import { WWW_FOLDER } from "../../../scripts/setup/www.mjs";
import { TOKEN, startFake } from "../../admin/fake.mjs";
import { SMALL, idOf, numberOf, stateOf } from "../../admin/world.mjs";
import { stateFolder } from "../folders.mjs";
import { until } from "../lossy.mjs";
import { npmStart } from "../npm-start.mjs";

/** The folder with a picture of each page, as people see it, after a run. */
const SHOTS = join(ROOT, "build/shots/browsers");

/** Makes `browser` play them. `after` is node:test's. */
export async function playPages(name, limit, browser, after) {
  const state = await stateFolder("semel-pages-");
  const lab = await npmStart({ after }, { SEMEL_PORT: "0", SEMEL_STATE: state });
  after(() => rm(state, { recursive: true, force: true }));
  assert.ok(lab.url, lab.output());
  const fake = await startFake(after, { folder: WWW_FOLDER });
  await mkdir(SHOTS, { recursive: true });

  /** Opens a page with the token of an administrator. `complaints()`: the page's uncaught errors. */
  const open = async (t, url, path) => {
    const tab = await browser.tab();
    t.after(() => tab.close());
    await tab.goto(`${url}/inspector`);
    await tab.look(([token, path]) => {
      sessionStorage.setItem("semel administration token", token);
      history.replaceState(null, "", path);
    }, [TOKEN, path]);
    await tab.reload();
    await tab.look(() => {
      const { dataset } = document.documentElement;
      dataset.complaints = "";
      for (const type of ["error", "unhandledrejection"]) addEventListener(type, ({ message, reason }) => (dataset.complaints += `${message ?? reason}\n`));
    });
    const shoot = async (what) => writeFile(join(SHOTS, `${name}-${what}.png`), Buffer.from(await tab.screenshot(), "base64"));
    return { tab, shoot, complaints: () => tab.look(() => document.documentElement.dataset.complaints) };
  };
  const shows = (tab, text) => until(() => tab.look((text) => document.body.innerText.includes(text), text), text);
  const click = (tab, label) =>
    until(() => tab.look((label) => {
      const found = [...document.querySelectorAll("button")].find((button) => button.checkVisibility() && button.textContent.trim() === label);
      found?.click();
      return found !== undefined;
    }, label), label);

  test(`${name}: the lab: with a third of the requests and answers lost, semel.fetch is exact`, limit, async (t) => {
    const { tab, shoot, complaints } = await open(t, lab.url, "/#lose-requests=33&lose-answers=33&run=20");
    const told = await until(async () => {
      const text = await tab.look(() => document.getElementById("told").textContent);
      return text.startsWith("20 deposits, ") && text;
    }, "the page tells the result", limit.timeout);
    assert.match(told, /; semel\.fetch has \$200, exact\.$/);
    assert.equal(await tab.look(() => document.querySelectorAll("#plot canvas").length), 1);
    await shoot("lab");
    assert.equal(await complaints(), "");
  });

  test(`${name}: the inspector: a cancellation whose answer is lost is sent again, happens once, and is shown`, limit, async (t) => {
    const id = Array.from({ length: 100 }, (_, n) => n).filter((n) => stateOf(n) === "suspect").map((n) => idOf(numberOf(SMALL), n))[0];
    const { tab, shoot, complaints } = await open(t, fake.url, "/inspector#order=heaviest");
    await until(async () => (await tab.look(() => document.querySelectorAll(".page [role=row]").length)) > 50, "keys are listed");
    await shoot("keys");
    await tab.look((fragment) => void (location.hash = fragment), `#${new URLSearchParams({ key: SMALL })}`);
    await shows(tab, "Delete this key…");
    await shoot("key");
    await tab.look((fragment) => void (location.hash = fragment), `#${new URLSearchParams({ key: SMALL, id })}`);
    await click(tab, "Cancel it…");
    await shoot("question");
    const calls = fake.calls.length;
    fake.faults.push({ on: "change", kind: "lose-answer" });
    await click(tab, "Cancel the id");
    await shows(tab, "It is cancelled: from now on it never runs.");
    await shoot("told");
    const changes = fake.calls.slice(calls).filter(({ method }) => method === "POST");
    assert.deepEqual([changes.length, new Set(changes.map((change) => change.id)).size], [2, 1]);
    assert.deepEqual(fake.done, [`POST keys/${SMALL}/cancel ${JSON.stringify({ id })}`]);
    assert.equal(await complaints(), "");
  });
}
