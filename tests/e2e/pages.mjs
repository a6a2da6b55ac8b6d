// Serves the pages that a browser opens, and receives what they tell.
//
// Invariants:
// - Pages have a server of their own, so that the worker is of another origin, and CORS applies.
// - A page tells by a request that it awaits. So what has not arrived here was not told.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { ROOT } from "../../scripts/setup/paths.mjs";

const PAGE = fileURLToPath(new URL("page", import.meta.url));
const SDK = join(ROOT, "sdk/npm");
/** The sources of the SDK, for tests of its parts. */
const PARTS = join(ROOT, "sdk/js");
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".wasm": "application/wasm",
};

/**
 * Serves the test page from the folder `page`, and the SDK as it is packed. Keeps what is posted to `/tell`, and calls `onTold` with it. `isKept`: the
 * browser may keep a page that was left.
 */
export async function servePages({ page = PAGE, onTold, isKept = false } = {}) {
  const folders = { page, sdk: SDK, js: PARTS };
  const told = [];
  const server = createServer(async (request, response) => {
    if (request.method === "POST" && request.url === "/tell") {
      let text = "";
      try {
        for await (const chunk of request) text += chunk;
      } catch {
        return; // The page is gone, and has told nothing.
      }
      told.push(JSON.parse(text));
      onTold?.(told.at(-1));
      return response.writeHead(204).end();
    }
    const path = fileOf(folders, request.url.split("?")[0]);
    const content = path && (await readFile(path).catch(() => undefined));
    if (content === undefined) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream", "cache-control": isKept ? "no-cache" : "no-store" }).end(content);
  });
  await new Promise((resolve, reject) => server.on("error", reject).listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/page/index.html`,
    told,
    close() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      return closed;
    },
  };
}

/** The file of `/page/…`, `/sdk/…` or `/js/…`; undefined for other paths. */
function fileOf(folders, url) {
  const [, name, rest] = /^\/(page|sdk|js)\/([\w./-]+)$/.exec(url) ?? [];
  if (name === undefined) return undefined;
  const path = join(folders[name], rest);
  return path.startsWith(folders[name] + sep) ? path : undefined;
}
