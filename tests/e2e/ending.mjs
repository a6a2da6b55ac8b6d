// Ends what a test file has started together with the file, even if the runner ends the file because it took too long.
//
// Invariant: what can't be ended, because it is over already, keeps nothing else from being ended.

let endings;

/** Calls `kill` when this process ends. The returned function takes that back. */
export function endWithTests(kill) {
  if (!endings) {
    endings = new Set();
    process.on("exit", () => endings.forEach(endOne));
    // Without this, a signal would end the process without calling the listeners of `exit`.
    for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
  }
  endings.add(kill);
  return () => endings.delete(kill);
}

/**
 * Resolves to what `begun` does. If that fails, first ends what was begun before, by `kill`: Node calls no listeners of `exit` for a test file that fails
 * before its first test.
 */
export async function orEnd(begun, kill) {
  try {
    return await begun;
  } catch (error) {
    await kill();
    throw error;
  }
}

function endOne(kill) {
  try {
    kill();
  } catch (error) {
    console.error(error);
  }
}
