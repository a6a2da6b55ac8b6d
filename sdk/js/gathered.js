// Attempts of an outbox that may overlap, sent together: what comes while others are under way at its key goes as one batch.
//
// Invariants:
// - What finds few under way at its key goes in the same turn, by itself unless many come in it. What is held goes when one of those has come back: nothing
//   waits for a timer.
// - Order is the module's: of two requests that have one, it gives only one to `fetch` at a time.
// - Nothing pauses for what only a batch is told: that is asked for again, by itself. An attempt may be made twice, under its one id.
// - What is aborted is not sent any more, and nothing while the network is said to be gone.

import { AGAIN_MS, answerOf, inJson, isOfFrame } from "./frames.js";
import { responseOf } from "./requests.js";

/** So many may be under way at a key, each a request or a batch; what comes then is held. */
const UNDER_WAY_MAX = 4;
/** What goes in a batch. A key takes four times as many, and twice as much. */
const ELEMENTS_MAX = 64;
const BODIES_BYTES_MAX = 512 << 10;
/** What goes in one `Semel-Ack`. */
const ACKS_MAX = 64;
const ACK_BYTES_MAX = 4_096;
/** Where no batch comes through, the next is tried after up to so many times as long. */
const PATIENCE_MAX = 64;

/** From now on `setup.fetch` sends together what may go together. All else that it is given it passes on. */
export function gather(setup) {
  const { origin, fetch } = setup;
  /** What goes to one key under the same credentials: who is held, and how many are under way. */
  const lanes = new Map();
  /** Until then each goes by itself; and how many times as long it will be next. */
  let againMs = -Infinity;
  let patience = 1;
  const isOff = () => performance.now() < againMs;
  /** What was held, or refused as a batch, may find the network gone: it is lost, and sent again once that is back. */
  const leave = async (...given) => {
    if (globalThis.navigator?.onLine === false) throw new TypeError("offline");
    return fetch(...given);
  };

  setup.fetch = (url, init) => {
    const { name, ...one } = isOff() ? {} : elementOf(origin, url, init);
    if (!name) return fetch(url, init);
    const lane = lanes.get(name) ?? { name, underWay: 0, held: [] };
    lanes.set(name, lane);
    return new Promise((resolve, reject) => {
      init.signal.addEventListener("abort", () => reject(init.signal.reason));
      const alone = () => {
        const answered = leave(url, init);
        resolve(answered);
        return answered;
      };
      lane.held.push({ ...one, url, init, resolve, reject, alone });
      // Those that one answer has set free come in a row.
      queueMicrotask(() => next(lane));
    });
  };

  function next(lane) {
    lane.held = lane.held.filter(isWanted);
    while (lane.held.length && (isOff() || lane.underWay < UNDER_WAY_MAX)) {
      const areFew = isOff() || lane.underWay + lane.held.length <= UNDER_WAY_MAX;
      go(lane, lane.held.splice(0, areFew ? 1 : fitting(lane.held)));
    }
    if (!lane.underWay) lanes.delete(lane.name);
  }

  async function go(lane, all) {
    const batch = new AbortController();
    lane.underWay += 1;
    // A `fetch` of one's own may know of no signal.
    const abandoned = new Promise((_, reject) => {
      let left = all.length;
      for (const { init } of all) init.signal.addEventListener("abort", () => --left || reject(batch.abort()));
    });
    try {
      await Promise.race([all.length > 1 ? sendBatch(all, batch.signal) : all[0].alone(), abandoned]);
    } catch (error) {
      for (const { reject } of all) reject(error);
      // What hangs must not keep all others from their turn; and what is lost as a batch may come through by itself.
      if (all.length > 1 || !all.some(isWanted)) refrain();
    }
    lane.underWay -= 1;
    next(lane);
  }

  async function sendBatch(all, signal) {
    const [{ key, outer }] = all;
    const headers = { ...outer, "content-type": "application/json" };
    const acks = all.flatMap(({ ack }) => ack ?? []).join(", ");
    if (acks) headers["semel-ack"] = acks;
    const body = `[${all.map(({ text }) => text())}]`;
    const response = await leave(`${origin}/semel/v1/keys/${key}/batch`, { method: "POST", headers, body, redirect: "manual", signal });
    const [answer, said, { status }] = [await response.text(), new Headers(response.headers), response];
    if (status !== 200) {
      refrain();
      // What is refused whole has acknowledged nothing, though the key has answered.
      said.delete("semel-key");
      // Too many for now, or nobody there: so it would be by itself, and not sooner. Whatever else may be the batch's fault.
      const isLater = status === 429 || status > 499;
      for (const one of all.filter(isWanted)) {
        if (isLater) one.resolve(new Response(answer, { status, headers: said }));
        else one.alone();
      }
      return;
    }
    const answers = JSON.parse(answer);
    if (said.get("semel-status") !== "executed" || answers.length !== all.length) throw new TypeError("these are no answers to a batch");
    // All at once: what they set free comes in one turn.
    const told = await Promise.all(answers.map((each, index) => answerOf(all[index].path, each)));
    for (const [index, one] of all.entries()) {
      const answered = told[index];
      // An outcome may be a problem of the application's own, which says what it likes.
      const isRefused = /^retry:after-fix$/m.test(answered[3]) && !/^semel-status:(executed|replayed)$/m.test(answered[1]);
      // A crash, say, or answers that are too large for a batch, or that can't be decoded here.
      if (isRefused || /^semel-status:unavailable$/m.test(answered[1])) refrain();
      if (!isRefused) one.resolve(responseOf(one.url, answered));
      else if (isWanted(one)) one.alone();
    }
    if (!isOff()) patience = 1;
  }

  /** For a while each goes by itself. */
  function refrain() {
    if (isOff()) return;
    againMs = performance.now() + AGAIN_MS * patience;
    patience = Math.min(patience * 2, PATIENCE_MAX);
    for (const lane of lanes.values()) next(lane);
  }
}

/** What a server lets into no batch, and its handler may read all the same, such as what a widget has its page send. That of a service token is the platform's. */
const OF_ITSELF = /^cf-(?!access-)/;

const isWanted = ({ init }) => !init.signal.aborted;

/** What an attempt is in a batch, and what it takes with it; nothing of what can't be in one. */
function elementOf(origin, url, { method, headers, body } = {}) {
  const said = (name) => headers?.get(name);
  const [key, id] = [said("semel-key"), said("idempotency-key")];
  if (!key || !id || body.length > BODIES_BYTES_MAX || [...headers.keys()].some((name) => OF_ITSELF.test(name))) return {};
  const path = url.slice(origin.length);
  const isInside = ([name]) => name.startsWith("content-") || !isOfFrame.test(name);
  const outer = Object.fromEntries([...headers].filter((header) => !isInside(header) && !/^(idempotency-key|semel-(?!principal).*)$/.test(header[0])));
  return {
    name: JSON.stringify([key, outer]),
    key: key.slice(1, -1).replaceAll("/", "%2F"),
    outer,
    path,
    ack: said("semel-ack"),
    // A structured-field string is written as one of JSON.
    text: () => {
      const inside = JSON.stringify(Object.fromEntries([...headers].filter(isInside)));
      const times = `"firstSent":${said("semel-first-sent").slice(1)},"deadline":${said("semel-deadline")}`;
      return `{"id":${id},${times},"method":"${method}","path":${JSON.stringify(path)},"headers":${inside},"body":${inJson(body)}}`;
    },
  };
}

/** How many of those that are held fit into one batch, from the first on. */
function fitting(held) {
  let bytes = 0;
  let acks = "";
  const end = held.findIndex(({ init, ack }, index) => {
    bytes += init.body.length;
    acks += ack ? `, ${ack}` : "";
    // Each id has one of these; where it is in an id as well, there is room for less.
    return index === ELEMENTS_MAX || bytes > BODIES_BYTES_MAX || acks.length - 2 > ACK_BYTES_MAX || acks.split(";until=").length - 1 > ACKS_MAX;
  });
  return end < 0 ? held.length : Math.max(end, 1);
}
