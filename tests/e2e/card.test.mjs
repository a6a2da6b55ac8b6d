// How docs/handlers.md charges a card: the Worker that is printed there, behind Semel, and a payment provider that knows ids and loses answers.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../scripts/setup/paths.mjs";
import { stateFolder } from "./folders.mjs";
import { serve } from "./server.mjs";

const LIMIT = { timeout: 60_000 };
const PROVIDER = "https://api.stripe.com";
const CENTS = 1_250;
const TRIES_MAX = 20;

/**
 * The charges by id. The provider charges once for each id. It repeats its answer to the same form, and complains about another form. It loses the
 * first 0, 1 or 2 answers of a charge, by the number of the charge; where the price moves, the first one. As at the real provider, a payment without
 * a card or without a confirmation is created but not charged.
 */
const charges = new Map();
const provider = createServer(async (request, response) => {
  let form = "";
  for await (const chunk of request) form += chunk;
  const id = request.headers["idempotency-key"];
  const charge = charges.get(id) ?? { number: charges.size, asked: 0, path: request.url, form };
  charges.set(id, charge);
  charge.asked += 1;
  const { payment_method, confirm, off_session } = Object.fromEntries(new URLSearchParams(form));
  const isCharged = payment_method !== undefined && confirm === "true" && off_session === "true";
  if (charge.form !== form) return response.writeHead(400, { "content-type": "application/json" }).end(JSON.stringify({ error: { type: "idempotency_error" } }));
  const lost = form.includes(`amount=${CENTS}&`) ? charge.number % 3 : 1;
  if (charge.asked <= lost) return charge.number % 2 === 0 ? request.socket.destroy() : response.writeHead(500).end();
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ id: `pi_${charge.number}`, status: isCharged ? "succeeded" : "requires_payment_method" }));
});
await new Promise((listening) => provider.listen(0, "127.0.0.1", listening));
after(() => provider.close());

const [, section] = (await readFile(join(ROOT, "docs/handlers.md"), "utf8")).split("### To charge a card");
const [, code] = /```js\n([^]*?)```/.exec(section);
const [, toml] = /```toml\n([^]*?)```/.exec(section);
const vars = Object.fromEntries([...toml.matchAll(/^(SEMEL_\w+) = ["'](.*)["']$/gm)].map(([, name, value]) => [name, value]));
const folder = await stateFolder("semel-card-");
after(() => rm(folder, { recursive: true, force: true }));
const worker = join(folder, "payments.js");
assert.ok(code.includes(PROVIDER));
await writeFile(worker, `${code.replace(PROVIDER, `http://127.0.0.1:${provider.address().port}`)}\nlet moving = ${CENTS};\nconst orderOf = (who, body) => ({ customer: "cus_1", card: "pm_1", amount: new TextDecoder().decode(body) === "{}" ? ${CENTS} : ++moving });\n`);
const server = await serve(after, "upstream", vars, { services: { UPSTREAM: worker }, reachesLocal: true });

const pay = (customer, id, body = "{}") => server.send("POST", "/payments", { id, key: `"customers/${customer}"`, body });

/** Pays as a client does: sends again under the same id until there is an outcome. */
async function paid(customer, id = randomUUID()) {
  for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
    const answer = await pay(customer, id);
    if (answer.status === 200 && answer.json.status === "succeeded") return { id, customer, tries, payment: answer.json.id };
  }
  throw new Error("there is no outcome");
}

test("each payment is charged once, though the provider loses up to two answers to a charge", LIMIT, async () => {
  const all = await Promise.all(Array.from({ length: 12 }, (_, number) => paid(number % 4)));
  assert.equal(charges.size, 12);
  assert.equal(new Set(all.map(({ payment }) => payment)).size, 12, "each has a charge of its own");
  assert.ok(all.some(({ tries }) => tries > 1), "some answers were lost");
  for (const { path, form, asked, number } of charges.values()) {
    assert.deepEqual([path, form, asked], ["/v1/payment_intents", `amount=${CENTS}&currency=eur&customer=cus_1&payment_method=pm_1&off_session=true&confirm=true`, (number % 3) + 1]);
  }
  for (const { id, customer, payment } of all) assert.equal((await paid(customer, id)).payment, payment);
  assert.equal(charges.size, 12, "again, it is the outcome that is recorded");
});

test("the same id at the keys of two customers is two payments", LIMIT, async () => {
  const [id, before] = [randomUUID(), charges.size];
  const both = [await paid("one", id), await paid("other", id)];
  assert.notEqual(both[0].payment, both[1].payment);
  assert.equal(charges.size, before + 2);
});

test("a path that is no payment is answered 404, and nobody is charged", LIMIT, async () => {
  const before = charges.size;
  const answer = await server.send("POST", "/refunds", { id: randomUUID(), key: '"customers/1"', body: "{}" });
  assert.deepEqual([answer.status, answer.semel], [404, "executed"]);
  assert.equal(charges.size, before);
});

test("if the price changes between two attempts, a payment that was charged is never reported as refused", LIMIT, async () => {
  const [id, before] = [randomUUID(), charges.size];
  for (let tries = 1; tries <= 3; tries += 1) {
    const answer = await pay("moving", id, '{"price":"moving"}');
    assert.notEqual(answer.semel, "executed", answer.text);
    assert.notEqual(answer.json.executed, "no", answer.text);
  }
  const [charge] = [...charges.values()].slice(before);
  assert.deepEqual([charges.size, charge.asked > 1], [before + 1, true], "it was charged once, and the provider complained");
});
