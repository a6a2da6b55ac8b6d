// The entry of `npx semel`: the process round the command line.

import { main } from "./main.js";

/** Put in by the build: the package's. */
const version = SEMEL_VERSION;

// Who reads no further, as `head` does, has what it wants; but what has failed has failed.
process.stdout.on("error", (error) => {
  if (error.code === "EPIPE") process.exit(process.exitCode ?? 0);
  // A full disk, say. What was asked for is done all the same, as it says where it can.
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
  // The second Ctrl-C ends it as it ends anything. Whoever ends it by `kill` or `timeout` is told as much.
  onInterrupt: (interrupt) => ["SIGINT", "SIGTERM"].forEach((signal) => process.once(signal, interrupt)),
}).then((code) => {
  process.exitCode = code;
});
