// Tests what the inspector shows of a key's effects (requests that its handler sends to others), and how an administrator sends one again, drops it
// or gives it up.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { until } from "../e2e/lossy.mjs";
import { at, inspect, shows } from "./inspector.mjs";
import { EMPTY, HOSTILE, SMALL, effectIdOf, sentBy } from "./world.mjs";

/** A test that takes longer hangs. */
const LIMIT = { timeout: 90_000 };

const { fake, open } = await inspect(after);
const cards = (tab, list) => tab.getByRole("list", { name: list }).locator("> li");
const texts = async (tab, list) => (await cards(tab, list).allInnerTexts()).map((text) => text.replace(/\s+/g, " "));

test("a key shows its waiting and refused effects: where each goes, how often it was tried, when again, and why", LIMIT, async (t) => {
  fake.effects.set(SMALL, sentBy());
  const { mine, tab } = await open(t, at(SMALL));
  await shows(tab, "1,209 of at most 10,000: what waits, and what was refused for good.");
  assert.deepEqual(await texts(tab, "What waits"), [
    "accounts/bob 1,200 waiting · the first stored 5 min ago · tried 17 times, again in 1 s POST /accounts/bob/credit 20 B, id 00000000000000000000000000000002 answered 503 unavailable Give up the first…",
    `${HOSTILE} 1 waiting · the first stored 5 min ago · tried once, under way POST /accounts/bob/credit no body, id 00000000000000000000000000000003 Give up the first…`,
    "https://mail.example.com 3 waiting · the first stored 5 min ago · not tried since the object started POST https://mail.example.com/send 20 B, id 00000000000000000000000000000004 Give up the first…",
    "accounts/eve 2 waiting · the first stored 5 min ago · tried 17 times, again in 1 s POST /accounts/bob/credit 20 B, id 00000000000000000000000000000005 Being given up: an administrator gave it up",
  ]);
  assert.deepEqual(await texts(tab, "Refused for good"), [
    "accounts/carl refused 1 min ago · it has not run POST /accounts/bob/credit 20 B, id 00000000000000000000000000000007 answered 422: no such account Send it again… Drop it…",
    "https://mail.example.com refused 1 min ago · it may have run POST https://mail.example.com/send 20 B, id 00000000000000000000000000000008 answered 404: <img src=x onerror='window.hacked = 1'> Send it again… Drop it…",
    'accounts/carl refused 1 min ago · it ran, and was answered so POST /accounts/bob/credit 20 B, id 00000000000000000000000000000009 answered 403: {"error":"forbidden"} Send it again… Drop it…',
  ]);
  assert.equal(await tab.evaluate(() => window.hacked), undefined);
  await tab.getByRole("link", { name: HOSTILE, exact: true }).click();
  await until(async () => (await tab.locator("h1 code").textContent()) === HOSTILE, "the other key is shown");
  assert.deepEqual(mine.complaints, []);
});

test("a key that never sent anything shows no list of effects; one with nothing left says that nothing waits", LIMIT, async (t) => {
  const { mine, tab } = await open(t, at(SMALL));
  for (const [sent, isShown] of [[null, false], [undefined, false], [{ lanes: [], parked: [] }, true]]) {
    fake.effects.set(SMALL, sent);
    const calls = fake.calls.length;
    await tab.reload();
    await until(() => fake.calls.slice(calls).some(({ path }) => path.includes("/effects")), "it is asked for");
    await tab.getByRole("heading", { name: "Records" }).waitFor();
    if (isShown) await shows(tab, "Nothing waits, and nothing is parked.");
    assert.equal(await tab.getByRole("heading", { name: "Sent to others" }).isVisible(), isShown, String(sent));
    assert.equal(await tab.getByRole("alert").count(), 0);
  }
  // The browser reports each answer that is no success in its own log.
  assert.deepEqual(mine.complaints.filter((text) => !/404/.test(text)), []);
});

test("an effect is sent again, dropped or given up after a question, once though an answer is lost, and the lists reload", LIMIT, async (t) => {
  fake.effects.set(SMALL, sentBy());
  const { tab } = await open(t, at(SMALL));
  const [calls, done] = [fake.calls.length, fake.done.length];
  const dialog = tab.getByRole("dialog");
  const ask = async (list, place, name, says) => {
    await cards(tab, list).nth(place).getByRole("button", { name }).click();
    assert.match(await dialog.innerText(), says);
  };
  await ask("Refused for good", 0, "Drop it…", /thrown away, and can't be had back/);
  await tab.getByRole("button", { name: "Do nothing" }).click();
  assert.equal(fake.done.length, done, "who does nothing changes nothing");

  await ask("Refused for good", 2, "Send it again…", /The handler there ran, and refused it/);
  await tab.keyboard.press("Escape");
  await ask("Refused for good", 1, "Send it again…", /the same Idempotency-Key as before/);
  await tab.keyboard.press("Escape");
  await ask("Refused for good", 0, "Send it again…", /It has not run, so it then runs once/);
  fake.faults.push({ on: "change", kind: "lose-answer" });
  await tab.getByRole("button", { name: "Send it again", exact: true }).dblclick();
  await shows(tab, "It is sent again, as a new one, behind all that waits.");
  await tab.getByRole("button", { name: "Close" }).click();
  await until(async () => (await cards(tab, "Refused for good").count()) === 2, "it is not parked any more");
  assert.equal(await tab.evaluate(() => document.activeElement.id), "effects", "where one was");

  await ask("Refused for good", 0, "Drop it…", /nobody sends it any more/);
  await tab.getByRole("button", { name: "Drop it", exact: true }).click();
  await shows(tab, "It is dropped.");
  await tab.getByRole("button", { name: "Close" }).click();
  await until(async () => (await cards(tab, "Refused for good").count()) === 1, "it is gone");

  await ask("What waits", 2, "Give up the first…", /it may have had its effect, or may still have it/);
  await tab.keyboard.press("Escape");
  await ask("What waits", 0, "Give up the first…", /closed at the other key first/);
  await tab.getByRole("button", { name: "Give it up", exact: true }).click();
  await shows(tab, "It is given up, once the other key has said that it never runs there.");
  await tab.getByRole("button", { name: "Close" }).click();

  assert.deepEqual(fake.done.slice(done), [[7, "retry"], [8, "drop"], [2, "park"]].map(([n, what]) => `POST keys/${SMALL}/effects/${effectIdOf(n)}/${what}`));
  const changes = fake.calls.slice(calls).filter(({ method }) => method === "POST");
  assert.deepEqual([changes.length, new Set(changes.map(({ id }) => id)).size], [4, 3], "the answer that was lost is another attempt of the same");
});

test("if somebody else has already dropped an effect, the page says so, and that nothing was changed", LIMIT, async (t) => {
  fake.effects.set(SMALL, sentBy());
  const { tab } = await open(t, at(SMALL));
  await cards(tab, "Refused for good").first().getByRole("button", { name: "Drop it…" }).click();
  fake.effects.get(SMALL).parked.shift();
  await tab.getByRole("button", { name: "Drop it", exact: true }).click();
  await shows(tab, "This request neither waits here nor is parked any more.");
  await shows(tab, "Nothing was changed.");
  await tab.keyboard.press("Escape");
  await tab.getByRole("button", { name: "Look again" }).click();
  await until(async () => (await cards(tab, "Refused for good").count()) === 2, "it is looked at again");
});

test("parked effects are shown page by page, each once, and a page that failed is said so, and can be asked for again", LIMIT, async (t) => {
  const { parked: [one] } = sentBy();
  fake.effects.set(EMPTY, { lanes: [], parked: Array.from({ length: 120 }, (_, number) => ({ ...one, number: number + 1, reason: `the ${number + 1}th` })) });
  const { tab } = await open(t, at(EMPTY));
  for (const count of [50, 100, 120]) {
    await until(async () => (await cards(tab, "Refused for good").count()) === count, `${count} cards`);
    if (count === 50) fake.faults.push({ on: "read", kind: 503, code: "unavailable" });
    if (count < 120) await tab.getByRole("button", { name: "Show more" }).click();
    if (count !== 50) continue;
    await shows(tab, "The server is not available at the moment.");
    await tab.getByRole("button", { name: "Try again" }).click();
  }
  assert.deepEqual(await tab.locator(".effects .why").allInnerTexts(), Array.from({ length: 120 }, (_, n) => `the ${n + 1}th`));
  assert.equal(await tab.getByRole("button", { name: "Show more" }).count(), 0);
});

test("the question whether to delete a key says how much it has still to send, or that this could not be found out", LIMIT, async (t) => {
  for (const [effects, says] of [
    [sentBy(), / goes too, and is never sent: 1,209 requests, for example a credit whose debit is done\./],
    [null, /the records and their outcomes\.$/],
    ["broken", /could not be found out; that would go too\.$/],
  ]) {
    fake.effects.set(SMALL, effects === "broken" ? null : effects);
    const { tab } = await open(t, at(SMALL));
    await shows(tab, "Delete this key…");
    if (effects === "broken") await tab.route("**/effects?limit=1", (route) => route.abort());
    await tab.getByRole("button", { name: "Delete this key…" }).click();
    await until(async () => says.test(await tab.locator(".says p").first().textContent()), String(says));
    await tab.close();
  }
  fake.effects.clear();
});
