// The page that end-to-end tests open. It makes deposits with the SDK, and tells the test what comes of them.
//
// Invariants:
// - A deposit is told before it is handed to the SDK, and each answer as soon as it is there.
// - An answer that comes by `onrecovered` is told before the SDK may forget it.
// - Every URL carries the number of its deposit: `?n=17`.

import { Semel } from "semel";
import { askToSendInBackground } from "semel/service-worker";

let semel;
let session;
/** The answers that this page got. They are here even if the page is offline and can't tell. */
const answers = [];
const recovered = [];
const paused = [];
const done = (request) => new Promise((resolve, reject) => Object.assign(request, { onsuccess: () => resolve(request.result), onerror: () => reject(request.error) }));

window.bank = {
  answers,
  recovered,
  paused,
  storesLost: 0,

  /** `token` identifies the user. It can be changed later: each attempt has the current one. */
  async open({ token, ...options }) {
    bank.token = token;
    if (token) options.headers = () => ({ authorization: `Bearer ${bank.token}` });
    options.onstorelost = () => (bank.storesLost += 1);
    options.onpaused = ({ url, error }) => void paused.push({ n: numberOf(url), ...refusal(error) });
    semel = await Semel.open(options);
  },

  fetch: (...request) => semel.fetch(...request),
  /** Makes a deposit with an id that the page chooses. */
  depositAs: (id, { n, account, amount }) => semel.fetch(`/accounts/${account}/deposit?n=${n}`, { method: "POST", body: JSON.stringify({ amount }), id }).then(outcome, refusal),
  outcome: (id) => semel.outcome(id).then(outcome, refusal),
  pending: () => semel.pending(),
  resume: () => semel.resume(),
  close: () => semel.close(),

  /** Makes a service worker go on with what is left once the last tab is gone. Resolves once it is ready. */
  async sendInBackground(options) {
    await navigator.serviceWorker.register(`service-worker.js?${encodeURIComponent(JSON.stringify(options))}`, { type: "module" });
    await navigator.serviceWorker.ready;
    askToSendInBackground(semel);
  },

  /** Takes the answers to requests of earlier pages, from now on. */
  takeRecovered() {
    semel.onrecovered = async ({ requestId, url, response, error }) => {
      const answer = { n: numberOf(url), by: "onrecovered", requestId, ...(error ? refusal(error) : await outcome(response)) };
      recovered.push(answer);
      await tell(answer);
    };
  },

  /** Makes deposits, `atATime` of them at once. Resolves when all have their answers. */
  async run(deposits, atATime) {
    const open = [...deposits];
    const caller = async () => {
      for (let next = open.shift(); next !== undefined; next = open.shift()) {
        await tell({ n: next.n, by: "started" });
        await deposit(next);
      }
    };
    await Promise.all(Array.from({ length: atATime }, caller));
  },

  deposit,

  /** Takes over a session at an account. Resolves to its epoch and last place. What earlier holders left comes to `recovered`. */
  async takeSession(account, name, transport) {
    session = await semel.session(`accounts/${account}`, name, {
      transport,
      onrecovered: async ({ url, response, error }) => void recovered.push({ n: numberOf(url), ...(error ? refusal(error) : await outcome(response)) }),
    });
    return [session.epoch, session.lastSeq];
  },
  /**
   * For `forMs`, makes deposits in a session that others want, too, three at a time. Deposits that never ran because they were fenced are made again
   * by its next holder. Their numbers are `first`, and each `step` after it. Resolves to how often it took the session over.
   */
  async contend({ account, first, step }, name, pauseMs, forMs) {
    const endsMs = Date.now() + forMs;
    let [takeOvers, next, open] = [0, first, []];
    while (Date.now() < endsMs) {
      await bank.takeSession(account, name);
      takeOvers += 1;
      for (let fenced = []; fenced.length === 0 && Date.now() < endsMs; ) {
        for (; open.length < 3; next += step) open.push({ n: next, account, amount: next + 1 });
        await bank.inSession(open);
        fenced = answers.filter(({ error }) => error?.code === "fenced" && error.executed === "no");
        answers.splice(0, answers.length, ...answers.filter((answer) => !fenced.includes(answer)));
        open = open.filter(({ n }) => fenced.some((answer) => answer.n === n));
      }
      await session.close();
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    return takeOvers;
  },
  /** Resolves to how many rows the stores of this page have. */
  async rows() {
    let count = 0;
    for (const { name } of await indexedDB.databases()) {
      const database = await done(indexedDB.open(name));
      for (const store of database.objectStoreNames) count += await done(database.transaction(store).objectStore(store).count());
      database.close();
    }
    return count;
  },
  /** Makes deposits in the session, all at once. What each caller got comes to `answers`. */
  inSession: (deposits) =>
    Promise.all(
      deposits.map(async ({ n, account, amount }) => {
        const body = JSON.stringify({ amount });
        answers.push({ n, ...(await session.fetch(`/accounts/${account}/deposit?n=${n}`, { method: "POST", body }).then(outcome, refusal)) });
      }),
    ),
};

async function deposit({ n, account, amount }) {
  const body = JSON.stringify({ amount });
  const answer = await semel.fetch(`/accounts/${account}/deposit?n=${n}`, { method: "POST", body }).then(outcome, refusal);
  answers.push({ n, by: "promise", ...answer });
  await tell({ n, by: "promise", ...answer });
  return answer;
}

async function outcome(response) {
  return { status: response.status, semel: response.headers.get("semel-status"), text: await response.text() };
}

function refusal({ name, code, executed, message, cause }) {
  return { error: { name, code, executed, message, cause: cause?.code } };
}

function numberOf(url) {
  return Number(new URL(url, location).searchParams.get("n"));
}

/** Tells the test. Resolves once the test has it. */
async function tell(what) {
  const response = await fetch("/tell", { method: "POST", body: JSON.stringify(what), keepalive: true });
  if (response.status !== 204) throw new Error(`/tell: ${response.status}`);
}
