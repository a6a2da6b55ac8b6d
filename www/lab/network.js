// The network of the lab. As the settings say, it loses requests and answers, sends twice, delays, and is offline.
//
// Invariants:
// - Both clients send through it, and it treats them alike.
// - What is on its way can't be taken back: a client that stops waiting, by a timeout, changes nothing. What still waits for one of the browser's
//   connections is not on its way, and is not sent any more. Otherwise, over a slow connection, attempts of which nobody waits for the answer would
//   keep those out of which somebody does, and no run would end.
// - It reports each attempt to deposit through `record`: before it is sent, and again when its fate is known.

import { ATTEMPTS_MAX, DELAY_MS_MAX } from "./limits.js";

/** How long it takes until a client sees that a connection broke. */
const BROKEN_MS = 60;

/**
 * A network whose `settings` are read for each attempt: `loseRequests`, `loseAnswers`, `twice` (percent), `delay` (the most, in ms), `offline`.
 * `connections`: how many requests go at a time. `record` gets each attempt. The other members are the page's; tests have their own.
 */
export function makeNetwork({ settings, connections = Infinity, record, fetch, random = Math.random, now = Date.now, sleep = pause }) {
  const sentOf = new Map();
  const line = makeLine(connections);

  /** Sends as `fetch` does. `lane`: for which client. `click`: for which click; undefined if the request is no deposit. */
  async function send(lane, click, url, init = {}) {
    const { signal } = init;
    signal?.throwIfAborted();
    const { isTwice, ...fate } = chance();
    const attempt = begin(lane, click);
    await attempt.save();
    const answer = carry(attempt, url, init, fate);
    if (isTwice) repeat(lane, click, url, init);
    return signal ? abortable(answer, attempt, signal) : answer;
  }

  /** Sends a copy. Nobody waits for its answer. */
  async function repeat(lane, click, url, init) {
    const copy = begin(lane, click, { isCopy: true });
    await copy.save();
    await carry(copy, url, init, { loseRequest: false, loseAnswer: true, delayMs: delay() }).catch(() => {});
  }

  function chance() {
    const hits = (percent) => random() * 100 < percent;
    return {
      loseRequest: hits(settings.loseRequests),
      loseAnswer: hits(settings.loseAnswers),
      isTwice: hits(settings.twice),
      delayMs: delay(),
    };
  }

  const delay = () => random() * Math.min(settings.delay, DELAY_MS_MAX);

  function begin(lane, click, { isCopy = false } = {}) {
    const key = `${click}-${lane}`;
    const k = (sentOf.get(key) ?? 0) + 1;
    const isDeposit = click !== undefined;
    if (isDeposit) sentOf.set(key, k);
    let isKept = isDeposit && k <= ATTEMPTS_MAX;
    let told = { id: `${click}-${lane}-${random().toString(36).slice(2, 10)}`, click, lane, sentMs: now(), fate: "sent", answer: isCopy ? "lost" : "waiting", isCopy };
    return {
      id: isDeposit ? told.id : undefined,
      isCopy,
      save: () => (isKept ? record(told) : undefined),
      /** Called when the attempt leaves. From here on it may reach the server, so it is recorded even if the click has too many attempts. */
      async leave() {
        if (isKept || !isDeposit) return;
        isKept = true;
        await record(told);
      },
      become(members) {
        // An answer that comes after the client stopped waiting still counts as lost.
        told = { ...told, ...members, ...(told.answer === "lost" && { answer: "lost" }) };
        if (isKept) record(told);
      },
    };
  }

  async function carry(attempt, url, { signal, ...init }, { loseRequest, loseAnswer, delayMs }) {
    const lost = (why) => {
      attempt.become({ fate: "lost", why, answer: "lost", endMs: now() });
      return broken();
    };
    if (delayMs > 0) await sleep(delayMs);
    if (loseRequest || settings.offline) return lost(settings.offline ? "offline" : "request");
    if (!(await line.enter(signal, attempt.isCopy))) return lost("busy");
    let answer;
    try {
      if (settings.offline) return lost("offline");
      await attempt.leave();
      answer = await exchange(url, { ...init, headers: marked(init.headers, attempt.id) });
    } finally {
      line.leave();
    }
    if (answer === undefined) return lost("server");
    const { response, body } = answer;
    const isLost = loseAnswer || settings.offline;
    attempt.become({ fate: fateBy(response), answer: isLost ? "lost" : "came", endMs: now() });
    if (isLost) return broken();
    return new Response([204, 205, 304].includes(response.status) ? null : body, response);
  }

  /** Resolves to the response and its body; to undefined if the connection broke. Then only the server's log can tell whether the request arrived. */
  async function exchange(url, init) {
    try {
      const response = await fetch(url, init);
      return { response, body: await response.arrayBuffer() };
    } catch {
      return undefined;
    }
  }

  async function broken() {
    await sleep(BROKEN_MS);
    throw new TypeError("the connection broke");
  }

  /** Does what `fetch` does when its signal aborts: stops waiting. */
  function abortable(answer, attempt, signal) {
    return new Promise((resolve, reject) => {
      const abort = () => {
        attempt.become({ answer: "lost" });
        reject(signal.reason);
      };
      if (signal.aborted) abort();
      else signal.addEventListener("abort", abort, { once: true });
      answer.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
    });
  }

  return { send };
}

/** The line for `connections`. Who waits for one the shortest gets it first: its client has the most time left. First come, first served, all would come too late. A copy comes last. */
function makeLine(connections) {
  const waiting = [];
  let free = connections;
  return {
    /** Resolves to true when there is a connection; to false if there is none and `signal` aborts before, or has aborted. */
    async enter(signal, isCopy) {
      if (free > 0) {
        free -= 1;
        return true;
      }
      if (signal?.aborted) return false;
      return new Promise((resolve) => {
        const end = (isNext) => {
          waiting.splice(waiting.indexOf(end), 1);
          signal?.removeEventListener("abort", giveUp);
          resolve(isNext);
        };
        const giveUp = () => end(false);
        signal?.addEventListener("abort", giveUp);
        if (isCopy) waiting.unshift(end);
        else waiting.push(end);
      });
    },
    leave() {
      const next = waiting.at(-1);
      if (next) next(true);
      else free += 1;
    },
  };
}

/** The fate of an attempt by its answer. The naive server sends no `Semel-Status`, so there the HTTP status counts. */
function fateBy(response) {
  const status = response.headers.get("semel-status");
  return fateByStatus(status ?? (response.ok ? "executed" : "failed"));
}

/** The fate by the status that the server gives an attempt, in its answer and in its log. */
export function fateByStatus(status) {
  if (status === "executed" || status === "replayed") return status;
  return status === "attempt-expired" ? "late" : "refused";
}

function marked(headers, id) {
  const all = new Headers(headers);
  if (id !== undefined) all.set("lab-attempt", id);
  return all;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
