// A frame of a session on its way: one request as itself, more of them as a batch in JSON, by a request or a socket.
//
// Invariants:
// - A request is the same alone and in a batch: its path, its own headers, its body, byte for byte.
// - So is its answer: a body that the handler has encoded is decoded, as `fetch` does it. What can't be decoded here is asked for by itself.

import { bytesOf, laid, Reader, textOf } from "./bytes.js";
import { linesOf, toLines } from "./lines.js";
import { given, membersOf, send } from "./transport.js";

/** Headers of the option that are of the frame, and not of what is in it. */
export const isOfFrame = /^(authorization|cookie|content-(type|encoding)|idempotency-key|(semel|cf)-.*)$/;

/** Where a socket does not open, or does not answer, the next is tried after so long; and so is a batch of an outbox. */
export const AGAIN_MS = 60_000;

/**
 * Sends what the module asks for; resolves as `send` does, but that the body of a batch is the answers in it, as the module reads them.
 * `way`: `{ socket, isAuto }`, with the socket that batches go by, if they do, and whether they go without where it does not open. `leaves` is
 * told what is given to `fetch`.
 */
export async function sendFrame(setup, request, signal, way, leaves) {
  const [method, target, lines, body] = request;
  const sent = (own, headers) => send({ ...setup, headers }, own, signal, leaves);
  if (!/^\/semel\/v1\/keys\/[^/]+\/batch$/.test(target)) return sent(request, setup.headers);
  // In the order in which they were asked for, whatever becomes of those before: without a socket, one after the other.
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
    // What nothing is missing for is on its way before those who called go on with their answers: the server works meanwhile.
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
    const answers = await way.socket.send({ authorization: headers.get("authorization") ?? undefined, principal: identity }, json, signal, next);
    return [200, "semel-status:executed\n", await answersOf(paths, () => answers), ""];
  } catch (error) {
    if (error.status) return [error.status, `semel-status:${error.code}\n`, new Uint8Array(), ""];
    // For want of a proxy that lets it through, say. One that has answered before was only closed.
    if (way.isAuto && !error.hasAnswered) way.againMs = performance.now() + AGAIN_MS;
    if (error.wasOpen || signal.aborted) throw error;
    // Nothing has left.
    return way.isAuto ? undefined : [502, "semel-status:upstream-unreachable\n", new Uint8Array(), "detail:the socket does not open\n"];
  }
}

/** The elements as JSON, and the path of each. */
function elementsOf(from, headers) {
  const paths = [];
  // Many have the same.
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

/** A body as JSON: as text, unless it is none, or base64 is shorter. */
export function inJson(bytes) {
  const base64 = () => `{"base64":"${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))}"}`;
  try {
    const text = strict.decode(bytes);
    const json = JSON.stringify(text);
    // What is escaped is ASCII: in UTF-8 it adds as many bytes as here characters.
    return (json.length - text.length) * 3 > bytes.length + 60 ? base64() : json;
  } catch {
    return base64();
  }
}

/** The answers to elements, as the module reads them. What is none of them it finds out. */
async function answersOf(paths, given) {
  try {
    const answers = given().map((answer, index) => answerOf(paths[index], answer));
    // Most wait for nothing.
    for (const [index, answer] of answers.entries()) if (answer.then) answers[index] = await answer;
    return laid(answers.flat());
  } catch {
    return new Uint8Array();
  }
}

/** What only a batch is told: so it goes again by itself. */
const UNREADABLE = [400, "semel-status:body-invalid\n", new Uint8Array(), "retry:after-fix\n"];

/** The answer to an element, as `send` has it of a request; or, of a body that has to be decoded, a promise of it, which does not reject. */
export function answerOf(path, { status, headers, body: text }) {
  // Bytes: a Response of a text has a type of its own.
  const body = typeof text === "string" ? bytesOf(text) : Uint8Array.from(atob(text.base64), (character) => character.charCodeAt(0));
  const made = (body) => [status, toLines(Object.entries(headers)), body, membersOf(path, headers["content-type"], body)];
  const encoding = headers["content-encoding"];
  return encoding && body.length ? decoded(encoding, body).then(made, () => UNREADABLE) : made(body);
}

async function decoded(encoding, body) {
  return new Uint8Array(await new Response(new Response(body).body.pipeThrough(new DecompressionStream(encoding))).arrayBuffer());
}
