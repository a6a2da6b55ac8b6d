// Sends requests to the upstream, as a careful proxy does.
//
// Invariants:
// - Requests go only to the configured origin or the bound service. Redirects are not followed.
// - Headers that belong to one connection, to the page or to Semel are not passed on. Nor are the client's credentials: those of the upstream are a setting.
// - A change leaves once for each call: the runtime must not repeat it.
// - An answer counts only if it is complete, within its limit and in time.
// - A call takes no longer than its time limit, counted from its recorded start and with all steps before it is sent.
// - "Nothing was sent" is reported only in three cases: the first connection (`SEMEL_UPSTREAM_CONNECT_FIRST`) could not be made, the service lacks the method,
//   or the request could not be made. For a `fetch` that fails, the runtime does not tell whether the request has left.

import { connect } from "cloudflare:sockets";
import { RpcStub } from "cloudflare:workers";
import { whole } from "./bodies.js";
import { inTime, within } from "./chores.js";
import { pairsOf, valueIn } from "./lines.js";
import { rootOf, timeoutSeconds } from "./settings.js";

const TIMEOUT_SECONDS_MAX = 600;
/** The largest body that the engine can record. */
const BODY_BYTES_MAX = 1 << 20;

/**
 * Headers that are not passed on, and below them prefixes of such headers. They belong to one connection or to the client; or they make the upstream use
 * another method, path or host than the one that was authorised; or, like `Proxy` under CGI, they make it send its own requests through the client.
 */
const KEPT_HERE = new Set(
  "accept-encoding authorization client-ip connection content-length cookie expect forwarded host idempotency-key keep-alive origin prefer proxy referer te trailer transfer-encoding true-client-ip upgrade via x-client-ip x-cluster-client-ip x-envoy-original-path x-host x-http-host-override x-http-method x-http-method-override x-method-override x-original-forwarded-for x-original-host x-original-method x-original-uri x-original-url x-rewrite-uri x-rewrite-url".split(" "),
);
const KEPT_HERE_FROM = /^(access-control|cf|proxy|sec|semel|x-forwarded|x-real)-/;
/** A header's name as the upstream may read it: many servers take `_`, and some any other sign, for `-`. */
const asRead = (name) => name.replace(/[^a-z\d]/g, "-");
/** Headers that a probe leaves out: with the change's conditions, the upstream's answer would not tell what it has. */
const NOT_PROBED = /^(content-|if-|range$)/;
/** The encodings that the runtime decodes, exactly as written here. Brotli unless the compatibility date is an old one. */
const DECODED = /^(gzip|br)$/;
const DECODES_BR = globalThis.Cloudflare?.compatibilityFlags?.brotli_content_encoding !== false;
/**
 * No caching: a cached 404 proves nothing, and what one principal has read is not for another. Under an old compatibility date the runtime does not know
 * the option.
 */
const UNCACHED = globalThis.Cloudflare?.compatibilityFlags?.cache_option_enabled === false ? {} : { cache: "no-store" };
/** Content types of bodies that are, or may be, text in UTF-8. */
const TEXT = /^($|text\/|application\/(.*[+])?(json|xml|javascript)\b)(?!.*charset=(?!"?utf-?8))/i;
/** Characters that no recorded header may have. */
const UNRECORDED = /[^\t -~\x80-\xff]/;
/** Headers that the engine removes from an answer before it counts the rest; of a HEAD's answer it keeps the length. */
const TAKEN_OUT = /^(content-length|date|server-timing|set-cookie|(access-control|semel)-.*)$/;
/** How many headers an outcome may have, and how many bytes their names and values may have in all. */
const HEADERS_MAX = 256;
const HEADER_BYTES_MAX = 8 << 10;

/** The time limit of a connection. */
const CONNECT_MS_MAX = 5_000;

/**
 * Returns the function that sends calls to `SEMEL_UPSTREAM`, or to the service bound as UPSTREAM. It never rejects. It resolves to
 * `[status, header lines, body]`, or to `[whether surely nothing was sent, reason]`. `sinceMs`: when the call's time has begun.
 */
export function senderOf(env) {
  const seconds = timeoutSeconds(env);
  if (!(seconds > 0 && seconds <= TIMEOUT_SECONDS_MAX)) throw new Error(`SEMEL_UPSTREAM_TIMEOUT_SECONDS is ${JSON.stringify(env.SEMEL_UPSTREAM_TIMEOUT_SECONDS)}; it must be above 0, and at most ${TIMEOUT_SECONDS_MAX}`);
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

/** Checks the settings, and returns a function that sends `asked` and waits for the answer as long as `leftMs()` says. */
function sendOf(env) {
  try {
    new Headers({ authorization: env.SEMEL_UPSTREAM_AUTHORIZATION ?? "" });
  } catch {
    // The runtime's error may contain part of the secret.
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
  // The address is not shown: it may have a password.
  if (!["http:", "https:"].includes(base.protocol) || !isPlain) throw new Error("SEMEL_UPSTREAM must be an origin, with a path at most");
  const root = rootOf(base);
  const connects = String(env.SEMEL_UPSTREAM_CONNECT_FIRST ?? false);
  if (!["true", "false"].includes(connects)) throw new Error(`SEMEL_UPSTREAM_CONNECT_FIRST is ${JSON.stringify(connects)}; it must be true or false`);
  return async (asked, leftMs) => {
    if (connects === "true") await connected(base, leftMs);
    return fetched((request) => fetch(request), root, { ...asked, body: onceOnly(asked) }, leftMs);
  };
}

/**
 * A body with which the runtime sends the request only once. If a reused connection breaks, the runtime repeats a request without a body whose method HTTP
 * calls idempotent. It never repeats a stream, because it can't know that this one is empty. The stream leaves as an empty body in chunks.
 */
function onceOnly({ method, body }) {
  if (!/^(PUT|DELETE)$/.test(method) || body?.byteLength) return body;
  const { readable, writable } = new IdentityTransformStream();
  // `close` resolves once the stream is read. That never happens if nothing can be sent, so it is not awaited.
  writable.close().catch(() => {});
  return readable;
}

/** Surely nothing was sent: a step before that has failed. */
class Unconnected extends Error {}

/**
 * Returns a function that tells how many ms a call has left. It throws once the time is over: the call must not be sent then, because whoever finds its
 * recorded start may take it for ended. A clock that is put back never gives more than the whole time: the other requests of the key wait for this call.
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
    // Throws at once if the address is invalid, or if there are too many connections.
    socket = connect({ hostname, port: Number(port) || (protocol === "http:" ? 80 : 443) });
    // A failure is reported by `opened`; `closed` would report it a second time, as an unhandled rejection.
    socket.closed.catch(() => {});
    await within(mostMs, socket.opened);
  } catch (error) {
    throw new Unconnected(`no connection: ${error}`);
  } finally {
    socket?.close().catch(() => {});
  }
}

/** `id` is the one that the engine has: a client may have sent none, or the same in another form. `left`: a pattern of headers to leave out as well. */
function headOf(lines, env, id, left) {
  const headers = new Headers();
  const named = (valueIn(lines, "connection") ?? "").split(",").map((one) => one.trim().toLowerCase());
  const [key, principal] = ["semel-key", "semel-principal"].map((name) => valueIn(lines, name));
  for (const [name, value] of pairsOf(lines)) {
    const read = asRead(name);
    if (KEPT_HERE.has(read) || named.includes(name) || KEPT_HERE_FROM.test(read) || left?.test(read)) continue;
    headers.append(name, value);
  }
  // An encoded answer would be recorded as it is, and replayed to clients that may not know the encoding.
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
      return heardOf(method, await fetch(request), (_, encoding) => encoding === "gzip" || DECODES_BR);
    });
  } catch (error) {
    throw mayHaveLeft ? error : new Unconnected(error);
  }
}

/**
 * The result of a call that was answered. Headers that can't be recorded are left out, which is better than to treat the answer as unknown.
 * `isDecoded(bytes, encoding)`: whether the runtime has decoded these bytes.
 */
async function heardOf(method, response, isDecoded) {
  const bytes = await bytesOf(response);
  if (bytes === undefined) return [false, `the answer has more than ${BODY_BYTES_MAX} bytes`];
  // The length of an encoded body is not that of the decoded one, which a GET gets.
  const tellsLength = method === "HEAD" && !response.headers.has("content-encoding");
  const isKept = ([name, value]) => !UNRECORDED.test(value) && (!TAKEN_OUT.test(name) || (tellsLength && name === "content-length")) && !(name === "content-encoding" && DECODED.test(value) && isDecoded(bytes, value));
  const lines = [...response.headers].filter(isKept).map(([name, value]) => `${name}:${value}\n`);
  return [response.status, fitting(lines).join(""), bytes];
}

/** The header lines that can be recorded. If they are too many, or too long together, the longest are left out. */
function fitting(lines) {
  const shortest = [...lines].sort((one, other) => one.length - other.length).slice(0, HEADERS_MAX);
  let bytes = 0;
  const kept = new Set(shortest.filter((line) => (bytes += new TextEncoder().encode(line).byteLength - ":\n".length) <= HEADER_BYTES_MAX));
  return lines.filter((line) => kept.has(line));
}

function bytesOf({ headers, body }) {
  // The runtime fails to decode an empty body that has an encoding.
  const isNone = headers.has("content-encoding") && headers.get("content-length") === "0";
  return whole(isNone ? null : body, BODY_BYTES_MAX);
}

/** The methods that this isolate has found at its service. A look-up costs as much as a call. */
const found = new Set();

/** Calls a method of the service: `{ id, key, principal, method, path, headers, body }` for `{ status, headers?, body? }`, or a `Response`. */
async function called(service, name, { id, key, principal, method, path, headers, body }, leftMs) {
  if (!found.has(name)) await find(service, name, leftMs());
  const mostMs = leftMs();
  const asked = { id, key, principal, method, path, headers: Object.fromEntries(headers), body };
  const ending = new AbortController();
  try {
    return await within(mostMs, service[name](asked).then((answer) => responded(method, answer, ending.signal)));
  } catch (error) {
    // Nobody will read a late answer: tell the service, by ending its stream.
    ending.abort();
    // A new version of the service may lack the method: the next call looks first.
    found.delete(name);
    throw error;
  }
}

/** Checks that the service has a method, without calling it. */
async function find(service, name, mostMs) {
  try {
    // Methods of the binding itself, such as `fetch`, are no methods of the service.
    const method = await within(mostMs, Promise.resolve(service[name]));
    if (!(method instanceof RpcStub)) throw new TypeError("the service has no such method");
    method[Symbol.dispose]();
  } catch (error) {
    throw new Unconnected(`SEMEL_UPSTREAM_METHOD: ${error}`);
  }
  found.add(name);
}

/** Makes the result of what the service returned. An invalid answer throws, which leaves the request in doubt. `signal` ends the reading of a stream. */
function responded(method, answer, signal) {
  const { status, headers, body } = answer ?? {};
  const isBody = body == null || typeof body === "string" || [ArrayBuffer, Uint8Array, ReadableStream].some((each) => body instanceof each);
  if (typeof status !== "number" || !isBody) throw new TypeError("the service gave a status that is no number, or a body that is no text or bytes");
  const content = body instanceof ReadableStream ? body.pipeThrough(new TransformStream(), { signal }) : body;
  const response = new Response(content, { status, headers: headers ?? {} });
  // The runtime decodes a Response that the service has fetched, but not one that the service has encoded itself. Bytes that begin like gzip, or that should
  // be text and are not UTF-8, were not decoded.
  const isEncoded = ([first, second]) => first === 0x1f && second === 0x8b;
  const isNoText = (bytes) => TEXT.test(response.headers.get("content-type") ?? "") && !isUtf8(bytes);
  return heardOf(method, response, (bytes) => answer instanceof Response && !isEncoded(bytes) && !isNoText(bytes));
}

function isUtf8(bytes) {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}
