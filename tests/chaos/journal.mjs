// A store for the SDK in Node that outlives a `kill -9` of its process: a file to which every change is appended.
//
// Invariants:
// - A change is handed to the system before it counts. So it outlives the process. It need not outlive the machine, so nothing is flushed.
// - A torn last line never counted. It is cut off before anything is appended.
// - Only one process has it open at a time.

import { closeSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";

export class Journal {
  #file;
  #rows = new Map();

  constructor(path) {
    for (const line of linesOf(path)) {
      const [id, row] = JSON.parse(line);
      if (row === null) this.#rows.delete(id);
      else this.#rows.set(id, Buffer.from(row, "base64"));
    }
    // Only the current rows are kept, in a file that replaces the old one atomically.
    writeFileSync(`${path}.new`, [...this.#rows].map(([id, row]) => lineOf(id, row)).join(""));
    renameSync(`${path}.new`, path);
    this.#file = openSync(path, "a");
  }

  async load() {
    return [...this.#rows].map(([id, row]) => [id, new Uint8Array(row)]);
  }

  async change(id, to) {
    const row = to(this.#rows.get(id));
    if (row !== null) this.#append(id, row);
  }

  async remove(ids) {
    for (const id of ids) this.#append(id, undefined);
  }

  close() {
    closeSync(this.#file);
  }

  #append(id, row) {
    const line = Buffer.from(lineOf(id, row));
    for (let at = 0; at < line.length; ) at += writeSync(this.#file, line, at);
    if (row === undefined) this.#rows.delete(id);
    else this.#rows.set(id, Buffer.from(row));
  }
}

function lineOf(id, row) {
  return `${JSON.stringify([id, row === undefined ? null : Buffer.from(row).toString("base64")])}\n`;
}

function linesOf(path) {
  try {
    return readFileSync(path, "utf8").split("\n").slice(0, -1);
  } catch (error) {
    if (error.code === "ENOENT") return [];
    throw error;
  }
}
