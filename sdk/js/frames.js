// Sends the frames of a session: a single request as itself, several as a batch in JSON, by HTTP or over a socket.
//
// Invariants:
// - A request is the same alone and in a batch: its path, its own headers, and its body, byte for byte.
// - So is its answer: a body that the handler has encoded is decoded, as `fetch` would do it. If it can't be decoded here, the request is sent again alone.

import { bytesOf, laid, Reader, textOf } from "./bytes.js";
import { linesOf, toLines } from "./lines.js";
import { given, membersOf, send } from "./transport.js";

/** Headers of the option `headers` that belong to the frame, and not to its requests. */
export const isOfFrame = /^(authorization|cookie|content-(type|encoding)|idempotency-key|(semel|cf)-.*)$/;

/** The pause before the next socket after one that did not open or answer, and before the next batch of an outbox after a failed one. */
export const AGAIN_MS = 60_000;

/**
 * Sends a request of the module. Resolves as `send` does; for a batch, the body is its answers as the module reads them. `way`: `{ socket, isAuto }`: the
 * socket for batches, if there is one, and whether to use HTTP if it does not open. `leaves` is called with the arguments of `fetch`.
 */
export async function sendFrame(setup, request, signal, way, leaves) {
  const [method, target, lines, body] = request;
  const sent = (own, headers) => send({ ...setup, headers }, own, signal, leaves);
  if (!/^\/semel\/v1\/keys\/[^/]+\/batch$/.test(target)) return sent(request, setup.headers);
  // Batches leave in the order of these calls: over a socket once the one before has left, by HTTP once it has ended.
  const before = way.last;
  let next;
  const last = (way.last = new Promise((resolve) => {
    next = () => {
      resolve();
      if (way.last === last) way.last = undefined;
    };
  }));
  signal.addEventListener("abort", next);
  try {
    // Nothing is awaited if nothing needs it. Then the frame leaves before callers go on with their answers, and the server works meanwhile.
    const headers = new Headers(typeof setup.headers === "function" ? await given(setup.headers) : setup.headers);
    if (before) await before;
    const { paths, json } = elementsOf(new Reader(body), [...headers].filter(([name]) => !isOfFrame.test(name)));
    const bySocket = await sentBySocket(setup, headers, paths, json, signal, way, next);
    if (bySocket) return bySocket;
    const [status, answerLines, answer, members] = await sent([method, target, lines, json], headers);
    return [status, answerLines, status === 200 ? await answersOf(paths, () => JSON.parse(textOf(answer))) : answer, members];
  } finally {
    next();
  }
}

async function sentBySocket({ identity }, headers, paths, json, signal, way, next) {
  if (!way.socket || performance.now() < way.againMs) return undefined;
  signal.throwIfAborted();
  try {
    const answers = await way.socket.send({ authorization: headers.get("authorization"), principal: identity }, json, signal, next);
    return [200, "semel-status:executed\n", await answersOf(paths, () => answers), ""];
  } catch (error) {
    if (error.status) return [error.status, `semel-status:${error.code}\n`, new Uint8Array(), ""];
    // A proxy may not let sockets through. A socket that has answered before was only closed.
    if (way.isAuto && !error.hasAnswered) way.againMs = performance.now() + AGAIN_MS;
    if (error.wasOpen) throw error;
    // Nothing was sent. If the attempt was aborted, nothing will be by HTTP either.
    return way.isAuto ? undefined : [502, "semel-status:upstream-unreachable\n", new Uint8Array(), "detail:the socket does not open\n"];
  }
}

/** The requests of a batch as JSON, and their paths. */
function elementsOf(from, headers) {
  const paths = [];
  // Many requests have the same headers: their JSON is made once.
  let [last, own] = [];
  const elements = Array.from({ length: from.integer() }, () => {
    const [named, method, path, lines] = [from.text(), from.text(), from.text(), from.text()];
    if (lines !== last) [last, own] = [lines, JSON.stringify(Object.fromEntries([...headers, ...linesOf(lines)]))];
    paths.push(path);
    return `{${named},"method":"${method}","path":${JSON.stringify(path)},"headers":${own},"body":${inJson(from.bytes())}}`;
  });
  return { paths, json: `[${elements}]` };
}

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A body in JSON: as text, or as base64 if it is not UTF-8 or if that is shorter. */
export function inJson(bytes) {
  const base64 = () => `{"base64":"${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))}"}`;
  try {
    const text = strict.decode(bytes);
    const json = JSON.stringify(text);
    // Escapes are ASCII, so they add as many bytes as characters.
    return (json.length - text.length) * 3 > bytes.length + 60 ? base64() : json;
  } catch {
    return base64();
  }
}

/** The answers of a batch as the module reads them. Empty if they can't be read, which the module takes for no answer. */
async function answersOf(paths, given) {
  try {
    const answers = given().map((answer, index) => answerOf(paths[index], answer));
    // Awaits only those that are promises, which few are.
    for (const [index, answer] of answers.entries()) if (answer.then) answers[index] = await answer;
    return laid(answers.flat());
  } catch {
    return new Uint8Array();
  }
}

/** Stands for an answer that can't be decoded. The module sends a request that only a batch refused again alone. */
const UNREADABLE = [400, "semel-status:body-invalid\n", new Uint8Array(), "retry:after-fix\n"];

/** The answer to a request of a batch, in the form of `send`; or a promise of it, which never rejects, if its body must be decoded. */
export function answerOf(path, { status, headers, body: text }) {
  // As bytes, because a Response made of text gets a content type.
  const body = typeof text === "string" ? bytesOf(text) : Uint8Array.from(atob(text.base64), (character) => character.charCodeAt(0));
  const made = (body) => [status, toLines(Object.entries(headers)), body, membersOf(path, headers["content-type"], body)];
  const encoding = headers["content-encoding"];
  return encoding && body.length ? decoded(encoding, body).then(made, () => UNREADABLE) : made(body);
}

async function decoded(encoding, body) {
  return new Uint8Array(await new Response(new Response(body).body.pipeThrough(new DecompressionStream(encoding))).arrayBuffer());
}
