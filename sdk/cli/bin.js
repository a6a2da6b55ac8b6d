// The entry of `npx semel`: connects the command line to the process.

import { main } from "./main.js";

/** The version of the package, inserted by the build. */
const version = SEMEL_VERSION;

// A reader such as `head` that stops early has what it wants. A command that failed still exits as failed.
process.stdout.on("error", (error) => {
  if (error.code === "EPIPE") process.exit(process.exitCode ?? 0);
  // A full disk, say. The command itself was carried out, and exits with 1 to say that its output is missing.
  const line = `What the command has to say could not be written: ${error.message}`;
  process.stderr.write(process.argv.includes("--json") ? `${JSON.stringify({ error: { code: "not-written", message: line } })}\n` : `${line}\n`);
  process.exit(1);
});

main(process.argv.slice(2), {
  version,
  env: process.env,
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  // A second Ctrl-C ends the process at once. SIGTERM, from `kill` or `timeout`, is handled like Ctrl-C.
  onInterrupt: (interrupt) => ["SIGINT", "SIGTERM"].forEach((signal) => process.once(signal, interrupt)),
}).then((code) => {
  process.exitCode = code;
});
