// What a test file started ends with it, also where the runner ends it for it took too long.

let endings;

/** Calls `kill` when this process ends, unless what is returned is called before. */
export function endWithTests(kill) {
  if (!endings) {
    endings = new Set();
    process.on("exit", () => endings.forEach((end) => end()));
    // Only so are the listeners for the exit called.
    for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
  }
  endings.add(kill);
  return () => endings.delete(kill);
}
