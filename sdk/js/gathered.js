// Sends attempts of an outbox that may overlap as batches: attempts that come while others of their key are under way.
//
// Invariants:
// - If few are under way at its key, an attempt leaves in the same turn: alone, unless many come in that turn. Others are held until one of those under way
//   has come back. No timer is used.
// - Order is the module's: of two requests that have an order, it gives only one at a time to `fetch`.
// - No request pauses because of a refusal that concerns only the batch: it is sent again alone. So an attempt may be made twice, under its one id.
// - Aborted attempts are not sent, and nothing is sent while the browser says that it is offline.

import { AGAIN_MS, answerOf, inJson, isOfFrame } from "./frames.js";
import { responseOf } from "./requests.js";

/** How many requests or batches may be under way at a key. Later attempts are held. */
const UNDER_WAY_MAX = 4;
/** The limits of a batch: a quarter of the requests and half of the bytes that a key takes. */
const ELEMENTS_MAX = 64;
const BODIES_BYTES_MAX = 512 << 10;
/** The limits of one `Semel-Ack`. */
const ACKS_MAX = 64;
const ACK_BYTES_MAX = 4_096;
/** After failed batches, the pause doubles each time, up to this factor. */
const PATIENCE_MAX = 64;

/** Replaces `setup.fetch` by one that sends attempts together where possible, and passes everything else on. */
export function gather(setup) {
  const { origin, fetch } = setup;
  /** For each key and credentials: the held attempts, and how many requests or batches are under way. */
  const lanes = new Map();
  /** Until `againMs`, each attempt goes alone; `patience` is the factor of the next pause. */
  let againMs = -Infinity;
  let patience = 1;
  const isOff = () => performance.now() < againMs;
  /** Like `fetch`, but fails while offline: the network may have gone while the attempt was held. It counts as lost then, and is made again. */
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
      // In a microtask, because attempts that one answer has set free come one after another.
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
    // An application's own `fetch` may ignore the signal.
    const abandoned = new Promise((_, reject) => {
      let left = all.length;
      for (const { init } of all) init.signal.addEventListener("abort", () => --left || reject(batch.abort()));
    });
    try {
      await Promise.race([all.length > 1 ? sendBatch(all, batch.signal) : all[0].alone(), abandoned]);
    } catch (error) {
      for (const { reject } of all) reject(error);
      // A batch that hangs must not hold up the others, and requests that are lost in a batch may come through alone.
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
      // A batch that is refused as a whole has acknowledged nothing. `Semel-Key` would tell the module that it has.
      said.delete("semel-key");
      // A rate limit or an unavailable server would answer a single request in the same way. Any other refusal may be because of the batch.
      const isLater = status === 429 || status > 499;
      for (const one of all.filter(isWanted)) {
        if (isLater) one.resolve(new Response(answer, { status, headers: said }));
        else one.alone();
      }
      return;
    }
    const answers = JSON.parse(answer);
    if (said.get("semel-status") !== "executed" || answers.length !== all.length) throw new TypeError("these are no answers to a batch");
    // All are settled in one turn, so that the requests that they set free come in one turn too.
    const told = await Promise.all(answers.map((each, index) => answerOf(all[index].path, each)));
    for (const [index, one] of all.entries()) {
      const answered = told[index];
      // Not for outcomes: an application's own problem may have any members.
      const isRefused = /^retry:after-fix$/m.test(answered[3]) && !/^semel-status:(executed|replayed)$/m.test(answered[1]);
      // The reason may be a crash, answers too large for a batch, or a body that can't be decoded here.
      if (isRefused || /^semel-status:unavailable$/m.test(answered[1])) refrain();
      if (!isRefused) one.resolve(responseOf(one.url, answered));
      else if (isWanted(one)) one.alone();
    }
    if (!isOff()) patience = 1;
  }

  /** Makes attempts go alone for a while. */
  function refrain() {
    if (isOff()) return;
    againMs = performance.now() + AGAIN_MS * patience;
    patience = Math.min(patience * 2, PATIENCE_MAX);
    for (const lane of lanes.values()) next(lane);
  }
}

/**
 * Headers that a server allows in no batch, but that a handler may read, such as those that a Cloudflare widget makes its page send. Not those of Access
 * service tokens, which are for the platform.
 */
const OF_ITSELF = /^cf-(?!access-)/;

const isWanted = ({ init }) => !init.signal.aborted;

/** Describes an attempt as an element of a batch. Empty if it can't be in one. */
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
    // A string of a structured field (`id`) is also one of JSON.
    text: () => {
      const inside = JSON.stringify(Object.fromEntries([...headers].filter(isInside)));
      const times = `"firstSent":${said("semel-first-sent").slice(1)},"deadline":${said("semel-deadline")}`;
      return `{"id":${id},${times},"method":"${method}","path":${JSON.stringify(path)},"headers":${inside},"body":${inJson(body)}}`;
    },
  };
}

/** How many of the held attempts fit into one batch, counted from the first. */
function fitting(held) {
  let bytes = 0;
  let acks = "";
  const end = held.findIndex(({ init, ack }, index) => {
    bytes += init.body.length;
    acks += ack ? `, ${ack}` : "";
    // Each acknowledged id has one ";until=". If an id contains that text too, the count is too high, which only makes the batch smaller.
    return index === ELEMENTS_MAX || bytes > BODIES_BYTES_MAX || acks.length - 2 > ACK_BYTES_MAX || acks.split(";until=").length - 1 > ACKS_MAX;
  });
  return end < 0 ? held.length : Math.max(end, 1);
}
