// Output and questions, at a terminal or through pipes.
//
// Invariants:
// - Text from the deployment can't control the terminal: control characters are written as escapes.
// - Only a terminal gets colours and bars. With `--json`, stdout gets nothing but JSON.

import { createInterface } from "node:readline/promises";
import picocolors from "picocolors";
import { UNSAFE, counted, number, safe } from "../admin/words.js";
import { Failure } from "./failure.js";

const BAR_CHARACTERS = 30;
/**
 * Wide enough for an id that is a hash (`hash-` and 64 digits). A longer cell, such as a key of up to 512 bytes, doesn't widen the column: only its
 * row is out of line.
 */
const COLUMN_CHARACTERS_MAX = 69;

export class Terminal {
  isJson;
  colours;
  #stdin;
  #stdout;
  #stderr;
  #hasBar = false;

  constructor({ env, stdin, stdout, stderr, isJson }) {
    this.#stdin = stdin;
    this.#stdout = stdout;
    this.#stderr = stderr;
    this.isJson = isJson;
    this.colours = picocolors.createColors(stdout.isTTY === true && !env.NO_COLOR && env.TERM !== "dumb");
  }

  out(text) {
    // On a terminal, stdout and stderr share the screen.
    this.#endBar();
    this.#stdout.write(text);
  }

  err(text) {
    this.#endBar();
    this.#stderr.write(text);
  }

  line(text = "") {
    this.out(`${text}\n`);
  }

  /** Writes one JSON document, on one line. */
  json(value) {
    this.line(jsonOf(value));
  }

  /** Writes something that is not the answer, to stderr. */
  note(text) {
    this.err(`${safe(text)}\n`);
  }

  fail({ lines, json }) {
    if (this.isJson) this.err(`${jsonOf({ error: json })}\n`);
    else for (const line of lines) this.note(line);
  }

  /** Writes rows of cells in columns. The columns `numeric` are aligned to the right. */
  table(rows, numeric = []) {
    const widths = rows[0].map((_, column) => Math.min(COLUMN_CHARACTERS_MAX, rows.reduce((widest, row) => Math.max(widest, row[column].length), 0)));
    for (const [at, row] of rows.entries()) {
      const cells = row.map((cell, column) => (numeric.includes(column) ? cell.padStart(widths[column]) : cell.padEnd(widths[column])));
      const text = cells.join("  ").trimEnd();
      this.line(at === 0 ? this.colours.bold(text) : text);
    }
  }

  /** Writes names and values, one pair a line. */
  facts(facts) {
    const width = Math.max(...facts.map(([name]) => name.length));
    for (const [name, value] of facts) this.line(`  ${this.colours.dim(name.padEnd(width))}  ${value}`);
  }

  /** Shows how far something is, at a terminal only. */
  progress(done, all, noun) {
    if (this.#stderr.isTTY !== true || this.isJson) return;
    const filled = all === 0 ? BAR_CHARACTERS : Math.floor((BAR_CHARACTERS * done) / all);
    this.#stderr.write(`\r[${"#".repeat(filled)}${"-".repeat(BAR_CHARACTERS - filled)}] ${number(done)} of ${counted(all, noun)}\x1b[K`);
    this.#hasBar = true;
  }

  /** Throws if nobody can see the question and answer it. The failure says how to do without, and `why` it asks, if it does not always. */
  needsSomebody(...why) {
    if (this.#stdin.isTTY !== true || this.#stderr.isTTY !== true) throw new Failure("usage", [...why, "This must be confirmed, and nobody is there to answer. Add --yes."]);
  }

  /** Asks, and resolves to the answer. It is empty if the input ends, as by Ctrl-D. */
  async ask(question, signal) {
    this.needsSomebody();
    const prompt = createInterface({ input: this.#stdin, output: this.#stderr });
    prompt.on("SIGINT", () => process.emit("SIGINT"));
    // When the input ends, newer versions of Node abort the question; older ones never settle it.
    const ended = new Promise((resolve) => prompt.once("close", () => resolve(undefined)));
    const answered = prompt.question(safe(question), { signal }).catch((error) => {
      if (error.name !== "AbortError") throw error;
    });
    try {
      const answer = await Promise.race([answered, ended]);
      if (answer !== undefined) return answer;
      this.note("");
      if (signal.aborted) throw new Failure("interrupted", ["Interrupted."]);
      return "";
    } finally {
      prompt.close();
    }
  }

  #endBar() {
    if (this.#hasBar) this.#stderr.write("\n");
    this.#hasBar = false;
  }
}

const unitOf = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** JSON leaves some unsafe characters as they are. As escapes they mean the same. */
const jsonOf = (value) => JSON.stringify(value).replace(UNSAFE, (character) => character.split("").map(unitOf).join(""));

export { safe };
/** The same for text within a line: line ends and tabs are escaped, too. */
export const safeLine = (text) => safe(text).replace(/[\n\t]/g, (character) => (character === "\n" ? "\\n" : "\\t"));

/**
 * A word quoted for a shell. Unsafe characters are written as bytes, in a form that bash and zsh read: the escapes used elsewhere would make another
 * word.
 */
export function quoted(word) {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (word.search(UNSAFE) < 0) return `'${word.replaceAll("'", "'\\''")}'`;
  const bytesOf = (character) => Array.from(new TextEncoder().encode(character), (byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  return `$'${word.replace(/[\\']/g, "\\$&").replace(UNSAFE, bytesOf)}'`;
}
