// Finds WebKit, the engine of Safari, for the tests in a third browser: WebKitGTK, controlled by its WebDriver, in a window on a virtual screen.
//
// Invariant: as with Firefox, a WebKit of the machine is used, root gets it installed, and without it all other tests run.

import { canInstall, install, printedBy, which } from "./programs.mjs";
import { run } from "./step.mjs";

const PROGRAMS = ["WebKitWebDriver", "Xvfb"];
const VERSION = 'imports.gi.versions.WebKit2 = "4.1"; const { WebKit2 } = imports.gi; print(`${WebKit2.get_major_version()}.${WebKit2.get_minor_version()}`);';
const PACKAGES = ["webkit2gtk-driver", "gir1.2-webkit2-4.1", "gjs", "xvfb"];

/** Resolves to its version; to undefined if any part is missing. */
export async function findWebKit({ env = process.env, execute = run } = {}) {
  for (const name of PROGRAMS) if ((await which({ env, execute }, name)) === undefined) return undefined;
  const printed = await printedBy(execute("gjs", ["-c", VERSION], { timeoutMs: 30_000 }));
  return /^\d+\.\d+/.exec(printed)?.[0];
}

/** The same, after installing it where that is possible. Options replace the machine in tests. */
export async function haveWebKit({ env = process.env, isRoot = process.getuid?.() === 0, execute = run } = {}) {
  const machine = { env, isRoot, execute };
  const found = await findWebKit(machine);
  if (found !== undefined || !(await canInstall(machine))) return found;
  await printedBy(install(machine, PACKAGES));
  return findWebKit(machine);
}
