// A run of the benchmark: runs its parts one after another, and records on which machine.

import { existsSync } from "node:fs";
import { open, rm, statfs } from "node:fs/promises";
import { createRequire } from "node:module";
import { availableParallelism, cpus, release, tmpdir, totalmem, type } from "node:os";
import { join } from "node:path";
import { run } from "../../scripts/setup/step.mjs";
import { PARTS } from "./parts.mjs";
import { median } from "./rounds.mjs";
import { Sides } from "./sides.mjs";
import { ROWS } from "./table.mjs";

/** A file system in memory, on systems that have it. */
const MEMORY = "/dev/shm";
const TMPFS = 0x01021994;
const FILE_SYSTEMS = { [TMPFS]: "tmpfs", 0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x794c7630: "overlayfs" };
const WRITES = 100;
const PAGE_BYTES = 4096;
/** How many calls of the SDK in a page are timed together, for each second of a round. */
const CALLS_A_SECOND = 30;

/** Runs the parts of these names. `each`: runs a step under a name. Resolves to the record of all. */
export async function measured(names, { rounds, seconds, records: recordsMax, "sdk-requests": sdkRequests }, each) {
  const settings = { rounds, seconds, sdkRequests, recordsMax };
  const record = { date: new Date().toISOString().slice(0, 10), ...(await machine()), settings, disk: await diskAt(tmpdir()), rows: [], curves: {} };
  const hasMemory = existsSync(MEMORY);
  const ends = [];
  const disks = new Map();
  const on = async (disk) => {
    if (!disks.has(disk)) {
      const sides = await Sides.on(disk);
      ends.push(() => sides.end());
      disks.set(disk, { sides });
    }
    return disks.get(disk);
  };
  try {
    for (const name of Object.keys(PARTS).filter((part) => names.includes(part))) {
      const { measure, starts, isInMemory } = PARTS[name];
      if (isInMemory && !hasMemory) continue;
      await each(name, async () => {
        const place = await on(isInMemory ? MEMORY : tmpdir());
        if (starts) place.servers ??= await starts(place.sides, seconds * 1000);
        const calls = Math.ceil(CALLS_A_SECOND * seconds);
        const found = await measure({ ...place, rounds, forMs: seconds * 1000, recordsMax, sdkRequests, calls, after: (end) => ends.push(end) });
        record.rows.push(...found.rows);
        Object.assign(record.curves, found.curves);
        if (found.inMemory) record.inMemory = found.inMemory;
        if (found.bound) record.bound = found.bound;
        if (found.handlers) record.handlers = found.handlers;
      });
    }
  } finally {
    for (const end of ends.reverse()) await end();
  }
  const order = ROWS.map(({ id }) => id);
  record.rows.sort((one, other) => order.indexOf(one.id) - order.indexOf(other.id));
  return record;
}

async function machine() {
  const version = async (command) => (await run(command, ["--version"])).trim().replace(/^\S+ /, "");
  return {
    machine: { cpu: cpus()[0].model.trim(), cores: availableParallelism(), memoryGiB: Math.round(totalmem() / 2 ** 30), system: `${type()} ${release().split("-")[0]}` },
    versions: { workerd: createRequire(import.meta.url)("workerd").version, node: process.versions.node, rustc: (await version("rustc")).split(" ")[0] },
  };
}

/** Resolves to the file system of `folder`, and to how many ms it takes to make a page of 4 KiB durable there. */
async function diskAt(folder) {
  const { type: number } = await statfs(folder);
  const path = join(folder, `semel-bench-disk-${process.pid}`);
  const file = await open(path, "w");
  const took = [];
  try {
    for (let write = 0; write < WRITES; write += 1) {
      const startedMs = performance.now();
      await file.write(Buffer.alloc(PAGE_BYTES, write));
      await file.datasync();
      took.push(performance.now() - startedMs);
    }
  } finally {
    await file.close();
    await rm(path);
  }
  return { fileSystem: FILE_SYSTEMS[number] ?? `type 0x${number.toString(16)}`, durableMs: Number(median(took).toFixed(2)) };
}
