// A Worker that stands behind Semel, as a service: it makes orders, asked by HTTP or by a call.
//
// Invariant: it is one module, for workerd takes its file as it is.

import { WorkerEntrypoint } from "cloudflare:workers";

/** What it was asked, for as long as it runs. */
const asked = [];

export default class extends WorkerEntrypoint {
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (request.method === "GET") return Response.json({ asked });
    asked.push({ by: "fetch", id: request.headers.get("idempotency-key"), path: pathname, body: await request.text() });
    if (pathname.endsWith("/fails")) return new Response("no", { status: 500 });
    return Response.json({ made: asked.length }, { status: 201 });
  }

  order({ id, key, principal, method, path, body }) {
    if (method === "GET") return { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify({ asked }) };
    asked.push({ by: "call", id, key, principal, path, body: new TextDecoder().decode(body) });
    if (path.endsWith("/throws")) throw new Error("told to throw");
    return { status: 201, headers: { "content-type": "application/json" }, body: JSON.stringify({ made: asked.length }) };
  }
}
