// `npm run sim`: builds the simulator, as `npm test` does, and runs it. `-- --seeds N --from S [--mutant NAME | --list-mutants]`
//
// Invariant: standard output and the exit code are the simulator's. What cargo prints goes to standard error.

import { spawnSync } from "node:child_process";
import { ROOT } from "./setup/paths.mjs";

// Built together with a test, cargo chooses the same features as for all tests, so what `npm test` compiled is used.
const BUILD = ["build", "--workspace", "--bin", "sim", "--test", "command_line", "--locked", "--quiet"];

const built = spawnSync("cargo", BUILD, { cwd: ROOT, stdio: ["ignore", 2, 2] });
if (built.status !== 0) {
  console.error(built.error ? `cargo: ${built.error.message}; Rust is needed, see CONTRIBUTING.md` : "the simulator could not be built");
  process.exit(1);
}

const { status } = spawnSync("target/debug/sim", process.argv.slice(2), { cwd: ROOT, stdio: "inherit" });
process.exit(status ?? 1);
