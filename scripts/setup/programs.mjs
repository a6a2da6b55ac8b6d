// Programs of the machine: which there are, and what Debian's apt-get brings.
//
// Invariant: only root, and only where apt-get is, gets anything installed.

import { resolve } from "node:path";
import { StepError } from "./step.mjs";

const UPDATE_MS = 180_000;
const INSTALL_MS = 600_000;

/** What a command printed; nothing where it failed: to a probe that is an answer, not an error. */
export async function printedBy(command) {
  try {
    return await command;
  } catch (error) {
    if (error instanceof StepError) return "";
    throw error;
  }
}

/** Resolves to the path of a program by its name or path; undefined where there is none. */
export async function which({ env, execute }, name) {
  const printed = await printedBy(execute("/bin/sh", ["-c", 'command -v "$0"', name], { env: { PATH: env.PATH } }));
  return printed.trim() ? resolve(printed.trim()) : undefined;
}

/** Whether a package could be installed here. */
export const canInstall = async ({ isRoot, ...machine }) => isRoot && (await which(machine, "apt-get")) !== undefined;

/** Installs packages; a step that fails says `advice`. */
export async function install({ env, execute }, names, advice) {
  const options = { env: { PATH: env.PATH, DEBIAN_FRONTEND: "noninteractive" }, advice };
  const wait = ["-o", "DPkg::Lock::Timeout=120"];
  await execute("apt-get", [...wait, "update"], { ...options, timeoutMs: UPDATE_MS });
  await execute("apt-get", [...wait, "install", "-y", "--no-install-recommends", ...names], { ...options, timeoutMs: INSTALL_MS });
}
