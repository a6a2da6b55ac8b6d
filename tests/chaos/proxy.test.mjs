// The proxy must do what it counts, and a client must cope with it: tests with a proxy that is kinder than it says would prove nothing.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";
import { after, test } from "node:test";
import { browse } from "../e2e/browser.mjs";
import { until } from "../e2e/lossy.mjs";
import { serve } from "../e2e/server.mjs";
import { CALM, startProxy } from "./proxy.mjs";

const ONLY = (kind) => ({ ...CALM, [kind]: 1 });
const REQUESTS = 40;

/** A target that answers with the body it got, a proxy in front of it, and functions that post through the proxy. */
async function proxied(t, shares) {
  const seen = [];
  const target = createServer(async (request, response) => {
    let body = "";
    try {
      for await (const chunk of request) body += chunk;
    } catch {
      return; // The request was cut off.
    }
    seen.push(body);
    response.writeHead(200, { "semel-status": "executed", "content-length": body.length + 9 }).end(`you said ${body}`);
  });
  await new Promise((resolve) => target.listen(0, "127.0.0.1", resolve));
  const address = { hostname: "127.0.0.1", port: target.address().port };
  const proxy = await startProxy({ target: () => address, seed: 3, shares });
  t.after(async () => {
    await proxy.close();
    target.closeAllConnections();
    await new Promise((resolve) => target.close(resolve));
  });
  const post = async (body) => {
    const answer = await fetch(`${proxy.url}/accounts/a/deposit?n=${body}`, { method: "POST", headers: { "idempotency-key": `id-${body}` }, body: String(body) });
    // The target's HTTP server answers half a request with 400.
    if (answer.status === 400) throw new Error("400");
    return answer.text();
  };
  const postAll = () => Promise.allSettled(Array.from({ length: REQUESTS }, (_, n) => post(n)));
  const heard = (answers) => answers.filter(({ status, value }, n) => status === "fulfilled" && value === `you said ${n}`).length;
  return { seen, proxy, postAll, heard };
}

test("without faults every request arrives once and is answered", async (t) => {
  const { seen, proxy, postAll, heard } = await proxied(t, CALM);
  assert.equal(heard(await postAll()), REQUESTS);
  assert.equal(seen.length, REQUESTS);
  const { requests, whole, ...faults } = proxy.counts;
  assert.deepEqual({ requests, whole }, { requests: REQUESTS, whole: REQUESTS });
  assert.deepEqual([...new Set(Object.values(faults))], [0], JSON.stringify(faults));
  assert.deepEqual(proxy.deposits.get(7), { ids: new Set(["id-7"]), heard: new Set(["executed"]) });
});

for (const [kind, counts] of [["cut", ["requestsCut", "answersCut"]], ["truncate", ["requestsTruncated", "answersTruncated"]]]) {
  test(`${kind}: some requests don't arrive, some answers don't, and no answer arrives in part`, async (t) => {
    const { seen, proxy, postAll, heard } = await proxied(t, ONLY(kind));
    const answers = await postAll();
    assert.ok(seen.length > 5 && seen.length < REQUESTS - 5, `${seen.length} arrived`);
    assert.ok(heard(answers) <= seen.length);
    assert.equal(answers.filter(({ status }) => status === "fulfilled").length, heard(answers), "nothing but whole answers");
    assert.ok(heard(answers) < 10, `${heard(answers)} were heard`);
    const [ofRequests, ofAnswers] = counts.map((count) => proxy.counts[count]);
    assert.ok(ofRequests > 5 && ofAnswers > 5 && ofRequests + ofAnswers >= REQUESTS - heard(answers), JSON.stringify(proxy.counts));
  });
}

test("stall: every request and answer arrives, only later", async (t) => {
  const { proxy, postAll, heard } = await proxied(t, ONLY("stall"));
  const startedMs = Date.now();
  assert.equal(heard(await postAll()), REQUESTS);
  const { requestsStalled, answersStalled } = proxy.counts;
  assert.ok(requestsStalled > 5 && answersStalled > 5 && requestsStalled + answersStalled > REQUESTS / 2, JSON.stringify(proxy.counts));
  assert.ok(Date.now() - startedMs > 1_000);
});

test("duplicate: every request arrives twice and is answered once", async (t) => {
  const { seen, proxy, postAll, heard } = await proxied(t, ONLY("duplicate"));
  assert.equal(heard(await postAll()), REQUESTS);
  await until(() => seen.length === 2 * REQUESTS, "the duplicates arrive");
  assert.equal(proxy.counts.duplicates, REQUESTS);
  assert.deepEqual([...new Set(seen)].length, REQUESTS);
});

for (const [kind, count] of [["cut", "socketsCut"], ["truncate", "socketsTruncated"], ["stall", "socketsStalled"], [undefined, "sockets"]]) {
  test(`a socket with ${kind ?? "no"} fault: the proxy counts what happened, and only the server gets a duplicate`, async (t) => {
    const SOCKETS = 12;
    const [frame, frames] = ["frame of a socket. ".repeat(20), 20];
    const arrived = [];
    // The target sends back what it gets, and hangs up when the other side does.
    const target = createTcpServer((socket) => {
      const at = arrived.push("") - 1;
      socket.on("error", () => {}).on("data", (chunk) => (arrived[at] += chunk) && socket.write(chunk));
    });
    await new Promise((resolve) => target.listen(0, "127.0.0.1", resolve));
    const address = { hostname: "127.0.0.1", port: target.address().port };
    const proxy = await startProxy({ target: () => address, seed: 3, shares: { ...(kind ? ONLY(kind) : CALM), duplicate: kind ? 0 : 1 } });
    t.after(async () => {
      await proxy.close();
      await new Promise((resolve) => target.close(resolve));
    });
    const all = `GET /socket HTTP/1.1\r\nUpgrade: websocket\r\n\r\n${frame.repeat(frames)}`;
    const exchanged = await Promise.all(
      Array.from({ length: SOCKETS }, async () => {
        const socket = connect(Number(new URL(proxy.url).port), "127.0.0.1");
        let back = "";
        const gone = new Promise((resolve) => socket.on("error", () => {}).on("close", resolve));
        socket.on("data", (chunk) => (back += chunk).length >= all.length && socket.end());
        const head = all.slice(0, -frame.length * frames);
        socket.write(head);
        // Like a client, it waits until it is let in. A fault may come first.
        await Promise.race([until(() => back.length >= head.length, "the head comes back"), gone]);
        for (let sent = 0; sent < frames; sent += 1) socket.write(frame);
        await gone;
        return back;
      }),
    );
    assert.deepEqual([proxy.counts.sockets, proxy.counts[count]], [SOCKETS, SOCKETS]);
    const whole = exchanged.filter((back) => back === all).length;
    assert.equal(whole, kind === "cut" || kind === "truncate" ? 0 : SOCKETS);
    assert.ok(exchanged.every((back) => all.startsWith(back)));
    const again = kind ? 0 : SOCKETS;
    await until(() => arrived.filter((text) => text === all).length >= whole + again, "what is sent once more arrives");
    assert.equal(arrived.length, SOCKETS + again);
  });
}

test("while there is no target, connections break and are counted as unreachable", async (t) => {
  const proxy = await startProxy({ target: () => undefined, seed: 3 });
  t.after(() => proxy.close());
  await assert.rejects(fetch(proxy.url), TypeError);
  assert.equal(proxy.counts.unreachable, 1);
});

test("a page sends again what had an answer that broke off, and each deposit is made once", { timeout: 240_000 }, async (t) => {
  const server = await serve(after, "ledger");
  const browser = await browse(after);
  const proxy = await startProxy({ target: () => new URL(server.url), seed: 5, shares: { ...CALM, truncate: 0.7 } });
  t.after(() => proxy.close());
  const page = await browser.tab();
  await page.evaluate((options) => bank.open(options), { url: proxy.url, retryIntervalMs: 20 });
  const deposits = Array.from({ length: 50 }, (_, n) => ({ n, account: "broken", amount: 2 ** n }));
  const answers = await page.evaluate((deposits) => Promise.all(deposits.map(bank.deposit)), deposits);
  const wrong = answers.filter(({ status, text }) => status !== 200 || !/^\{"id":"broken",.*\}$/.test(text));
  assert.deepEqual(wrong, []);
  assert.deepEqual(await server.account("broken"), { id: "broken", balance: 2 ** 50 - 1, entries: 50 });
  assert.ok(proxy.counts.answersTruncated > 20, JSON.stringify(proxy.counts));
});
