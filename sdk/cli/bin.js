// The entry of `npx semel`: the process round the command line.

import { main } from "./main.js";

/** Put in by the build: the package's. */
const version = SEMEL_VERSION;

// Who reads no further, as `head` does, has what it wants; but what has failed has failed.
process.stdout.on("error", (error) => {
  if (error.code !== "EPIPE") throw error;
  process.exit(process.exitCode ?? 0);
});

main(process.argv.slice(2), {
  version,
  env: process.env,
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  // The second Ctrl-C ends it as it ends anything.
  onInterrupt: (interrupt) => process.once("SIGINT", interrupt),
}).then((code) => {
  process.exitCode = code;
});
