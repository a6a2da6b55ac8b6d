// Tests the file store on a disk that is full: what does not fit rejects and changes nothing, and what is stored stays.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import * as fs from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fail, faultyFs, folderOf, put, storeIn, textsIn, told } from "./file-support.mjs";
import { rejection } from "./stub.mjs";

test("a store that can't write its name for lack of space leaves no file behind", async (t) => {
  const folder = folderOf(t);
  const store = storeIn(t, folder, { fs: faultyFs({ write: fail("ENOSPC") }).fs });
  for (let time = 0; time < 3; time += 1) assert.equal(told(await rejection(store.load())), "store-full ENOSPC");
  assert.deepEqual(readdirSync(folder), []);
});

/** A small file system if the system lets the test mount one, else one that counts bytes. */
function smallDisk(t) {
  const folder = mkdtempSync(join(tmpdir(), "semel-"));
  t.after(() => {
    if (isMounted) execFileSync("umount", ["-l", folder]);
    rmSync(folder, { recursive: true, force: true });
  });
  let isMounted = false;
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=2m", "semel-test", folder], { stdio: "ignore" });
  } catch {
    const room = 2 << 20;
    const used = () => readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
    const write = ({ args: [, , length] }) => (used() + length > room ? fail("ENOSPC")() : undefined);
    return { folder, fs: faultyFs({ write }).fs };
  }
  isMounted = true;
  return { folder, fs };
}

test("on a full disk changes reject and change nothing, reads go on, and changes go on once there is room", { timeout: 60_000 }, async (t) => {
  const { folder, fs: small } = smallDisk(t);
  const store = storeIn(t, folder, { fs: small });
  const expected = {};
  let refused = 0;
  for (let n = 0; refused < 20; n += 1) {
    const row = `${n % 10}`.repeat(100_000);
    try {
      await put(store, `row-${n}`, row);
      expected[`row-${n}`] = row;
    } catch (error) {
      assert.equal(told(error), "store-full ENOSPC");
      refused += 1;
    }
    assert.deepEqual(Object.keys(await textsIn(store)), Object.keys(expected));
  }
  assert.ok(Object.keys(expected).length >= 10, String(Object.keys(expected).length));
  const other = storeIn(t, folder, { fs: small });
  assert.deepEqual(await textsIn(other), expected);
  await store.remove(Object.keys(expected).slice(1), () => true);
  await put(other, "after", "1");
  for (let n = 0; n < 30; n += 1) await put(store, "again", `${n % 10}`.repeat(20_000)).catch((error) => assert.equal(told(error), "store-full ENOSPC"));
  const rows = await textsIn(other);
  assert.deepEqual([rows["row-0"], rows.after, Object.keys(rows).length], [expected["row-0"], "1", 3]);
});
