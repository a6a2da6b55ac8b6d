// The path of a request is that of `new URL`, even where the worker reads it without one.

import assert from "node:assert/strict";
import { test } from "node:test";
import { pathOf } from "../../worker/lines.js";

const HOSTS = ["http://127.0.0.1:8787", "https://example.com", "http://[::1]:80", "http://user@example.com", "http://a_b.example", "HTTP://EXAMPLE.com"];
const PIECES = ["a", "Z9", "_", "-", "~", ".", "..", "%2e", "%2F", "%41", " ", "", "ä", "\\", "a:b", "@", "*", "+", "'", ";", "?", "?q=1", "#f", "\t", "\n"];

test("pathOf gives the path and query of new URL, even where it reads them without one", () => {
  let plain = 0;
  for (const host of HOSTS) {
    for (const one of PIECES) {
      for (const other of PIECES) {
        for (const path of ["", "/", `/${one}`, `/${one}/`, `/${one}/${other}`, `/a/${one}${other}/b`]) {
          const url = new URL(host + path);
          assert.deepEqual(pathOf(host + path), { pathname: url.pathname, search: url.search }, host + path);
          if (/^[/\w~-]+$/.test(path) && !path.endsWith("/")) plain += 1;
        }
      }
    }
  }
  assert.ok(plain > 100, "some are plain");
});
