// WebKit, the engine of Safari, for the tests that run in a third browser: WebKitGTK, driven by its WebDriver in a window on a screen that nobody sees.
//
// Invariant: as with Firefox, what the machine has is used, root gets it installed, and a machine that can't have it runs everything else.

import { canInstall, install, printedBy, which } from "./programs.mjs";
import { run } from "./step.mjs";

const PROGRAMS = ["WebKitWebDriver", "Xvfb"];
const VERSION = 'imports.gi.versions.WebKit2 = "4.1"; const { WebKit2 } = imports.gi; print(`${WebKit2.get_major_version()}.${WebKit2.get_minor_version()}`);';
const PACKAGES = ["webkit2gtk-driver", "gir1.2-webkit2-4.1", "gjs", "xvfb"];

/** Resolves to its version; undefined where anything of it is missing. */
export async function findWebKit({ env = process.env, execute = run } = {}) {
  for (const name of PROGRAMS) if ((await which({ env, execute }, name)) === undefined) return undefined;
  const printed = await printedBy(execute("gjs", ["-c", VERSION], { timeoutMs: 30_000 }));
  return /^\d+\.\d+/.exec(printed)?.[0];
}

/** The same, once it is installed where it can be. The options stand in for the machine in tests. */
export async function haveWebKit({ env = process.env, isRoot = process.getuid?.() === 0, execute = run } = {}) {
  const machine = { env, isRoot, execute };
  const found = await findWebKit(machine);
  if (found !== undefined || !(await canInstall(machine))) return found;
  await printedBy(install(machine, PACKAGES));
  return findWebKit(machine);
}
