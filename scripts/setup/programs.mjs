// Programs of the machine: finds them, and installs them with Debian's apt-get.
//
// Invariant: only root installs anything, and only with apt-get.

import { resolve } from "node:path";
import { StepError } from "./step.mjs";

const UPDATE_MS = 180_000;
const INSTALL_MS = 600_000;

/** Resolves to what a command printed; to "" if it failed, which is an answer to a probe, not an error. */
export async function printedBy(command) {
  try {
    return await command;
  } catch (error) {
    if (error instanceof StepError) return "";
    throw error;
  }
}

/** Resolves to the path of a program, given by name or path; to undefined if there is none. */
export async function which({ env, execute }, name) {
  const printed = await printedBy(execute("/bin/sh", ["-c", 'command -v "$0"', name], { env: { PATH: env.PATH } }));
  return printed.trim() ? resolve(printed.trim()) : undefined;
}

/** Resolves to whether packages can be installed here. */
export const canInstall = async ({ isRoot, ...machine }) => isRoot && (await which(machine, "apt-get")) !== undefined;

/** Installs packages. If that fails, the error carries `advice`. */
export async function install({ env, execute }, names, advice) {
  const options = { env: { PATH: env.PATH, DEBIAN_FRONTEND: "noninteractive" }, advice };
  const wait = ["-o", "DPkg::Lock::Timeout=120"];
  await execute("apt-get", [...wait, "update"], { ...options, timeoutMs: UPDATE_MS });
  await execute("apt-get", [...wait, "install", "-y", "--no-install-recommends", ...names], { ...options, timeoutMs: INSTALL_MS });
}
