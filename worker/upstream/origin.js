// Sends to the other side, as a careful proxy does.
//
// Invariants:
// - Nothing goes anywhere but to the configured origin, or the bound service. Redirects are not followed.
// - What belongs to one connection, to the page, or to this layer stays here, credentials too: the other side's own are a setting.
// - A change leaves once for each call: the runtime repeats none.
// - An answer is whole, within its limit and in time, or it is no answer.
// - From its start on a call takes no longer than the settings say, with all that comes before it is sent: what is left of its time then is what it has.
// - That surely nothing was sent is said only where a connection was to be made first, and could not be, where a service lacks the method
//   that is to be called, or where there was no request yet: of one that fails the runtime says the same whether or not it has left.

import { connect } from "cloudflare:sockets";
import { RpcStub } from "cloudflare:workers";
import { inTime, within } from "./chores.js";
import { pairsOf, valueIn } from "./lines.js";
import { rootOf, timeoutSeconds } from "./settings.js";

const TIMEOUT_SECONDS_MAX = 600;
/** What the engine can record. */
const BODY_BYTES_MAX = 1 << 20;

/**
 * Of one connection, or of the client's own; or what has another method, path or host asked for than was granted, or, as `Proxy` by way of CGI, has the other
 * side ask others through the client. What begins with one of the others as well.
 */
const KEPT_HERE = new Set(
  "accept-encoding authorization client-ip connection content-length cookie expect forwarded host idempotency-key keep-alive origin prefer proxy referer te trailer transfer-encoding true-client-ip upgrade via x-client-ip x-cluster-client-ip x-envoy-original-path x-host x-http-host-override x-http-method x-http-method-override x-method-override x-original-forwarded-for x-original-host x-original-method x-original-uri x-original-url x-rewrite-uri x-rewrite-url".split(" "),
);
const KEPT_HERE_FROM = /^(access-control|cf|proxy|sec|semel|x-forwarded|x-real)-/;
/** To many servers a name with `_`, and to some with any other sign, is the same as with `-`, so it stays here where that would. */
const asRead = (name) => name.replace(/[^a-z\d]/g, "-");
/** Of the change alone: under its conditions the other side would tell a probe something else than what it has. */
const NOT_PROBED = /^(content-|if-|range$)/;
/** What the runtime decodes: written so, and in no other way. Brotli unless its day of compatibility is an old one. */
const DECODED = /^(gzip|br)$/;
const DECODES_BR = globalThis.Cloudflare?.compatibilityFlags?.brotli_content_encoding !== false;
/** An absence that a cache tells proves nothing, and what is read under one principal is not another's. Of an old day of compatibility the runtime takes no such option. */
const UNCACHED = globalThis.Cloudflare?.compatibilityFlags?.cache_option_enabled === false ? {} : { cache: "no-store" };
/** The types of what is text in UTF-8, or may be. */
const TEXT = /^($|text\/|application\/(.*[+])?(json|xml|javascript)\b)(?!.*charset=(?!"?utf-?8))/i;
/** What no header that is recorded may have. */
const UNRECORDED = /[^\t -~\x80-\xff]/;
/** What the engine takes out of an answer before it counts what is to be recorded. */
const TAKEN_OUT = /^(content-length|date|server-timing|set-cookie|(access-control|semel)-.*)$/;
/** So many headers an outcome may have, with so many bytes of names and values in all. */
const HEADERS_MAX = 256;
const HEADER_BYTES_MAX = 8 << 10;

/** So long a connection may take. */
const CONNECT_MS_MAX = 5_000;

/** What sends: to `SEMEL_UPSTREAM`, or to the service that is bound as UPSTREAM. It resolves to what came of a call, whose time has begun at `sinceMs`, and never rejects. */
export function senderOf(env) {
  const seconds = timeoutSeconds(env);
  if (!(seconds > 0 && seconds <= TIMEOUT_SECONDS_MAX)) throw new Error(`SEMEL_UPSTREAM_TIMEOUT_SECONDS must be above 0, and at most ${TIMEOUT_SECONDS_MAX}`);
  const send = sendOf(env);
  return async (call, _answer, [method, pathname, search, lines, body], sinceMs = Date.now()) => {
    const [, probe, , id] = call;
    const asked = probe ? { method: "GET", path: probe } : { method, path: pathname + search, body };
    if (["GET", "HEAD"].includes(asked.method)) asked.body = undefined;
    try {
      Object.assign(asked, headOf(lines, env, id, probe && NOT_PROBED));
    } catch (error) {
      return [true, String(error)];
    }
    try {
      return await send(asked, leftOf(sinceMs, seconds * 1000));
    } catch (error) {
      return [error instanceof Unconnected, String(error)];
    }
  };
}

/** What the settings say. What it gives sends, and waits for as long as there is left. */
function sendOf(env) {
  try {
    new Headers({ authorization: env.SEMEL_UPSTREAM_AUTHORIZATION ?? "" });
  } catch {
    // What is thrown may have some of it in it.
    throw new Error("SEMEL_UPSTREAM_AUTHORIZATION can't be the value of a header");
  }
  const { UPSTREAM: service, SEMEL_UPSTREAM: address, SEMEL_UPSTREAM_METHOD: name } = env;
  if (service && address !== undefined) throw new Error("SEMEL_UPSTREAM is set, and a service is bound as UPSTREAM");
  if (service) {
    return (asked, leftMs) => (name === undefined ? fetched((request) => service.fetch(request), "https://upstream", asked, leftMs) : called(service, name, asked, leftMs));
  }
  if (address === undefined) throw new Error("SEMEL_UPSTREAM is not set, and no service is bound as UPSTREAM");
  if (name !== undefined) throw new Error("SEMEL_UPSTREAM_METHOD is for a service that is bound as UPSTREAM, and SEMEL_UPSTREAM is set");
  const base = URL.canParse(address) ? new URL(address) : {};
  const isPlain = base.username + base.password + base.search + base.hash === "";
  if (!["http:", "https:"].includes(base.protocol) || !isPlain) throw new Error("SEMEL_UPSTREAM must be an origin, with a path at most");
  const root = rootOf(base);
  const connects = String(env.SEMEL_UPSTREAM_CONNECT_FIRST ?? false);
  if (!["true", "false"].includes(connects)) throw new Error("SEMEL_UPSTREAM_CONNECT_FIRST must be true or false");
  return async (asked, leftMs) => {
    if (connects === "true") await connected(base, leftMs);
    return fetched((request) => fetch(request), root, { ...asked, body: onceOnly(asked) }, leftMs);
  };
}

/**
 * A body with which the runtime sends a request once. Where a connection that was used before breaks, it sends one that has no body again by another, if HTTP
 * calls its method idempotent; of a stream it does not know that it is empty, and says so by chunks, of which there is none.
 */
function onceOnly({ method, body }) {
  if (!/^(PUT|DELETE)$/.test(method) || body?.byteLength) return body;
  const { readable, writable } = new IdentityTransformStream();
  // It is closed once it is read: where nothing can be sent, it never is.
  writable.close().catch(() => {});
  return readable;
}

/** Nothing was sent: what comes before it has failed. */
class Unconnected extends Error {}

/**
 * What a call has left of its time, each time that it is asked for. Where that is over, it is not sent: whoever finds its start may take it for ended. A clock
 * that is put back gives it no more than it had, for all of its key wait for its end.
 */
const leftOf = (sinceMs, mostMs) => () => {
  const ms = Math.min(sinceMs + mostMs - Date.now(), mostMs);
  if (!(ms > 0)) throw new Unconnected("its time was over before it was sent");
  return ms;
};

async function connected({ hostname, port, protocol }, leftMs) {
  const mostMs = Math.min(CONNECT_MS_MAX, leftMs());
  let socket;
  try {
    // What is no address, or one connection too many, is told at once.
    socket = connect({ hostname, port: Number(port) || (protocol === "http:" ? 80 : 443) });
    // It is told by `opened`; nobody else is to hear it again.
    socket.closed.catch(() => {});
    await within(mostMs, socket.opened);
  } catch (error) {
    throw new Unconnected(`no connection: ${error}`);
  } finally {
    socket?.close().catch(() => {});
  }
}

/** `id` is the engine's: a client may have sent none, or the same in another form. `left`: which headers are left out as well. */
function headOf(lines, env, id, left) {
  const headers = new Headers();
  const named = (valueIn(lines, "connection") ?? "").split(",").map((one) => one.trim().toLowerCase());
  const [key, principal] = ["semel-key", "semel-principal"].map((name) => valueIn(lines, name));
  for (const [name, value] of pairsOf(lines)) {
    const read = asRead(name);
    if (KEPT_HERE.has(read) || named.includes(name) || KEPT_HERE_FROM.test(read) || left?.test(read)) continue;
    headers.append(name, value);
  }
  // What is encoded would be recorded so, for clients that may not know the encoding.
  headers.set("accept-encoding", "identity");
  if (id !== undefined) headers.set("idempotency-key", id);
  if (key !== undefined) headers.set("semel-key", key);
  if (principal !== undefined) headers.set("semel-principal", principal);
  if (env.SEMEL_UPSTREAM_AUTHORIZATION !== undefined) headers.set("authorization", env.SEMEL_UPSTREAM_AUTHORIZATION);
  return { headers, id, key, principal };
}

async function fetched(fetch, root, { method, path, headers, body }, leftMs) {
  const mostMs = leftMs();
  let mayHaveLeft = false;
  try {
    return await inTime(mostMs, async (signal) => {
      const request = new Request(root + path, { method, headers, body, redirect: "manual", signal, ...UNCACHED });
      mayHaveLeft = true;
      return heardOf(await fetch(request), (_, encoding) => encoding === "gzip" || DECODES_BR);
    });
  } catch (error) {
    throw mayHaveLeft ? error : new Unconnected(error);
  }
}

/**
 * What came of a call that was answered. A header that can't be recorded is left out: the answer is known for all that. `isDecoded`: whether
 * the runtime has decoded these bytes, which have that encoding.
 */
async function heardOf(response, isDecoded) {
  const bytes = await bytesOf(response);
  if (bytes === undefined) return [false, `the answer has more than ${BODY_BYTES_MAX} bytes`];
  const isKept = ([name, value]) => !UNRECORDED.test(value) && !TAKEN_OUT.test(name) && !(name === "content-encoding" && DECODED.test(value) && isDecoded(bytes, value));
  const lines = [...response.headers].filter(isKept).map(([name, value]) => `${name}:${value}\n`);
  return [response.status, fitting(lines).join(""), bytes];
}

/** Lines of headers that can be recorded together: of too many, or too long ones, the longest are left out. */
function fitting(lines) {
  const shortest = [...lines].sort((one, other) => one.length - other.length).slice(0, HEADERS_MAX);
  let bytes = 0;
  const kept = new Set(shortest.filter((line) => (bytes += new TextEncoder().encode(line).byteLength - ":\n".length) <= HEADER_BYTES_MAX));
  return lines.filter((line) => kept.has(line));
}

async function bytesOf({ headers, body }) {
  // Where nothing has an encoding, the runtime fails to decode it.
  const isNone = headers.has("content-encoding") && headers.get("content-length") === "0";
  const chunks = [];
  let bytes = 0;
  for await (const chunk of (isNone ? undefined : body) ?? []) {
    bytes += chunk.byteLength;
    if (bytes > BODY_BYTES_MAX) return undefined;
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

/** Which methods the isolate has found at its service: one look-up costs as much as a call. */
const found = new Set();

/** Calls a method of the service: `{ id, key, principal, method, path, headers, body }` for `{ status, headers?, body? }`, or a `Response`. */
async function called(service, name, { id, key, principal, method, path, headers, body }, leftMs) {
  if (!found.has(name)) await find(service, name, leftMs());
  const mostMs = leftMs();
  const asked = { id, key, principal, method, path, headers: Object.fromEntries(headers), body };
  const ending = new AbortController();
  try {
    return await within(mostMs, service[name](asked).then((answer) => responded(answer, ending.signal)));
  } catch (error) {
    // Nobody reads on what comes too late, and its service hears of that.
    ending.abort();
    // Another version of the service may lack it: the next one looks first.
    found.delete(name);
    throw error;
  }
}

/** Asks the service for a method, and calls nothing. */
async function find(service, name, mostMs) {
  try {
    // What is the binding's own, `fetch` say, is no method of the service.
    const method = await within(mostMs, Promise.resolve(service[name]));
    if (!(method instanceof RpcStub)) throw new TypeError("the service has no such method");
    method[Symbol.dispose]();
  } catch (error) {
    throw new Unconnected(`SEMEL_UPSTREAM_METHOD: ${error}`);
  }
  found.add(name);
}

/** What is no answer is an error, and leaves the request in doubt: nothing is made of it that was not said. A body is read until `signal`. */
function responded(answer, signal) {
  const { status, headers, body } = answer ?? {};
  const isBody = body == null || typeof body === "string" || [ArrayBuffer, Uint8Array, ReadableStream].some((each) => body instanceof each);
  if (typeof status !== "number" || !isBody) throw new TypeError("the service gave a status that is no number, or a body that is no text or bytes");
  const content = body instanceof ReadableStream ? body.pipeThrough(new TransformStream(), { signal }) : body;
  const response = new Response(content, { status, headers: headers ?? {} });
  // A response that the service has fetched is decoded when it is read. One that it has encoded by itself is not: it begins as gzip does, or is text
  // that nobody could read.
  const isEncoded = ([first, second]) => first === 0x1f && second === 0x8b;
  const isNoText = (bytes) => TEXT.test(response.headers.get("content-type") ?? "") && !isUtf8(bytes);
  return heardOf(response, (bytes) => answer instanceof Response && !isEncoded(bytes) && !isNoText(bytes));
}

function isUtf8(bytes) {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}
