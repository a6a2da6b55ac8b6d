// A Worker behind Semel, bound as a service. It makes orders, over HTTP or by a call.
//
// Invariant: it is one module, because workerd takes its file as it is.

import { WorkerEntrypoint } from "cloudflare:workers";

const bytes = new TextEncoder().encode("bytes");
const typed = { "content-type": "text/csv" };

/** A response as it comes from an origin that compresses. */
const fetched = (encoding) => new Response("fetched", { status: 201, headers: { "content-encoding": encoding } });

/** `{"made":"brotli"}`, as a service has it that stores it compressed. */
const brotli = Uint8Array.from(atob("CwiAeyJtYWRlIjoiYnJvdGxpIn0D"), (character) => character.charCodeAt(0));
const compressed = (type) => new Response(brotli, { status: 201, headers: { "content-encoding": "br", ...(type && { "content-type": type }) }, encodeBody: "manual" });
/** A body that is no text, as it comes from an origin that compresses. */
const picture = (type) => new Response(Uint8Array.of(0x89, 0x50), { status: 201, headers: { "content-encoding": "br", "content-type": type } });

/** What a call may return as an answer, by the last part of the path. */
const GIVEN = {
  response: () => Response.json({ made: 1 }, { status: 201, headers: { "x-mine": "kept" } }),
  headers: () => ({ status: 201, headers: new Headers(typed), body: "a,b" }),
  pairs: () => ({ status: 201, headers: Object.entries(typed), body: bytes }),
  buffer: () => ({ status: 201, headers: null, body: bytes.buffer.slice(0) }),
  stream: () => ({ status: 201, body: new Blob([bytes]).stream() }),
  empty: () => ({ status: 204, body: "" }),
  gzip: () => fetched("gzip"),
  br: () => fetched("br"),
  zipped: () => new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip")), { status: 201, headers: { "content-encoding": "gzip" }, encodeBody: "manual" }),
  brotli: () => compressed("application/json; charset=utf-8"),
  untyped: () => compressed(),
  picture: () => picture("image/png"),
  latin: () => picture("text/plain; charset=iso-8859-1"),
};
const NOT_GIVEN = {
  text: () => ({ status: "201", body: "made" }),
  bigint: () => ({ status: 201n }),
  yes: () => ({ status: true }),
  "no-status": () => ({ body: "made" }),
  nothing: () => undefined,
  beyond: () => ({ status: 1201 }),
  object: () => ({ status: 201, body: { made: 1 } }),
  array: () => ({ status: 201, body: [1, 2] }),
  number: () => ({ status: 201, body: 5 }),
  large: () => ({ status: 201, body: new Uint8Array((1 << 20) + 1) }),
  injected: () => ({ status: 201, headers: { "x-one": "1\nx-two:2" } }),
};

/** How many of the endless bodies were cancelled. */
let ended = 0;

/** Answers that never end: one that never comes, and one whose body never ends. */
const ENDLESS = {
  never: () => new Promise(() => setInterval(() => {}, 1 << 30)),
  half: () => {
    let timer;
    const pull = (controller) => new Promise((resolve) => (timer = setTimeout(() => resolve(controller.enqueue(bytes)), 20)));
    const cancel = () => {
      clearTimeout(timer);
      ended += 1;
    };
    return new Response(new ReadableStream({ pull, cancel }), { status: 201 });
  },
};

/** The requests that came, for as long as the Worker runs. */
const asked = [];

export default class extends WorkerEntrypoint {
  field = "no method";

  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (request.method === "GET") return Response.json({ asked, ended });
    asked.push({ by: "fetch", id: request.headers.get("idempotency-key"), path: pathname, body: await request.text() });
    const endless = ENDLESS[pathname.split("/").at(-1)];
    if (endless) return endless();
    if (pathname.endsWith("/fails")) return new Response("no", { status: 500 });
    return Response.json({ made: asked.length }, { status: 201 });
  }

  order({ id, key, principal, method, path, body }) {
    if (method === "GET") return { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify({ asked, ended }) };
    asked.push({ by: "call", id, key, principal, path, body: new TextDecoder().decode(body) });
    const [, , how, name] = path.split("/");
    if (how === "gives") return { ...GIVEN, ...NOT_GIVEN, ...ENDLESS }[name]();
    if (path.endsWith("/throws")) throw new Error("told to throw");
    // As if another version of this Worker had been deployed that has no such method.
    if (path.endsWith("/renamed")) delete Object.getPrototypeOf(this).order;
    return { status: 201, headers: { "content-type": "application/json" }, body: JSON.stringify({ made: asked.length }) };
  }
}
