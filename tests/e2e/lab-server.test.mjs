// The server's side of the demonstration: the page's files.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { serve } from "./server.mjs";

const scratch = await mkdtemp(join(tmpdir(), "semel-lab-"));
after(() => rm(scratch, { recursive: true, force: true }));
const site = join(scratch, "site");
const FILES = {
  "index.html": ["text/html; charset=utf-8", "<!doctype html><title>lab</title>"],
  "docs/index.html": ["text/html; charset=utf-8", "<title>docs</title>"],
  "docs/protocol.html": ["text/html; charset=utf-8", "<title>protocol</title>"],
  "assets/lab-ABCD1234.js": ["text/javascript; charset=utf-8", "export {};"],
  "assets/lab-ABCD1234.js.map": ["application/json", "{}"],
  "assets/lab.js": ["text/javascript; charset=utf-8", "export {};"],
  "assets/lab-ABCD1234.css": ["text/css; charset=utf-8", "p {}"],
  "assets/semel-ABCD1234.wasm": ["application/wasm", "\0asm"],
  "assets/icon.svg": ["image/svg+xml", "<svg/>"],
  "assets/shot.png": ["image/png", "\x89PNG"],
  "assets/facts.json": ["application/json", "{}"],
};
for (const [name, [, text]] of Object.entries(FILES)) {
  await mkdir(join(site, name, ".."), { recursive: true });
  await writeFile(join(site, name), text);
}
await writeFile(join(scratch, "secret.txt"), "secret");

const server = await serve(after, "ledger", {}, { assets: site });
const get = (path, options) => server.send("GET", path, options);

test("each file has its type, is never sniffed, and is kept only where its name has a hash", async () => {
  for (const [name, [type, text]] of Object.entries(FILES)) {
    const path = name.replace(/(index)?\.html$/, "");
    for (const method of ["GET", "HEAD"]) {
      const { status, headers, text: told } = await server.send(method, `/${path}`);
      assert.deepEqual([status, headers.get("content-type"), told], [200, type, method === "GET" ? text : ""], path);
      assert.equal(headers.get("x-content-type-options"), "nosniff");
      const kept = /-ABCD1234\./.test(name) ? "public, max-age=31536000, immutable" : "no-cache";
      assert.equal(headers.get("cache-control"), kept, path);
    }
  }
  const { headers } = await get("/");
  const again = await get("/", { headers: { "if-none-match": headers.get("etag") } });
  assert.equal(again.status, 304, "what is unchanged is not sent again");
});

test("a path has one name", async () => {
  for (const [path, location] of [["/docs", "/docs/"], ["/docs/protocol.html", "/docs/protocol"], ["/docs/protocol/", "/docs/protocol"], ["/assets//lab.js", "/assets/lab.js"]]) {
    const { status, headers } = await get(path);
    assert.deepEqual([status, headers.get("location")], [307, location]);
  }
});

test("what is not there is 404, folders and what lies beside them too, and is not kept", async () => {
  const missing = ["/assets/", "/assets/gone-ABCD1234.js", "/docs/gone", "/docs/protocol%00", "/docs/%zz", "/assets/lab", "/docs//host.example"];
  const tricks = ["/assets/..%2f..%2fsecret.txt", "/assets/..%5c..%5csecret.txt", "/docs/%2e%2e%2f%2e%2e%2fsecret.txt", "/assets/....//....//secret.txt"];
  for (const path of [...missing, ...tricks]) {
    const { status, headers, text } = await get(path);
    assert.deepEqual([status, headers.get("cache-control"), text], [404, "no-cache", ""], path);
  }
  for (const path of ["/assets/../../secret.txt", "/docs/%2e%2e/%2e%2e/secret.txt", "/../secret.txt"]) {
    const answer = await server.raw(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 404/, path);
    assert.match(answer, /^semel-status: not-found\r?$/im, "it is the API's path, once it is read as browsers do");
  }
});

test("all else is the API's", async () => {
  assert.equal((await server.deposit("beside", 5)).semel, "executed");
  assert.deepEqual(await server.account("beside"), { id: "beside", balance: 5, entries: 1 });
  assert.equal((await get("/assets/../accounts/beside")).json.balance, 5);
  assert.equal((await get("/semel/v1/health")).status, 200);
  for (const path of ["/", "/docs/protocol", "/assets/lab.js"]) {
    assert.equal((await server.send("POST", path, { id: "posted" })).semel, "not-found", path);
    assert.equal((await server.send("OPTIONS", path)).status, 204);
  }
  assert.equal((await get("/index.html")).semel, "not-found");
});

test("without the page, its paths are the API's, which knows none of them", async (t) => {
  const bare = await serve((end) => t.after(end), "ledger");
  for (const path of ["/", "/docs", "/assets/lab.js"]) assert.equal((await bare.send("GET", path)).semel, "not-found", path);
});
