// Which owners are alive. An owner is announced by a file, which is a second name of the identity of its store.

import { join } from "node:path";
import { unlinkSync } from "node:fs";
import { StoreError } from "semel";
import { linkAs, removeName, textOf } from "./disk.js";
import { identityOf, isDead, readIdentity } from "./life.js";

const OWNER = /^[\w-]{1,64}$/;

export function checkOwner(owner) {
  if (typeof owner !== "string" || !OWNER.test(owner)) throw new TypeError("semel: an owner is up to 64 letters, digits, _ and -");
}

export async function announce(fs, folder, identity, owner) {
  const path = join(folder, `owner.${owner}`);
  // The name may already be this store's: an earlier call can have made it and still reported a failure.
  if ((await linkAs(fs, join(folder, `self.${identity.instance}`), path)) || (await textOf(fs, path)) === identity.text) return;
  throw new StoreError("store-failed", `the owner ${owner} is there already`);
}

/**
 * Takes an owner back. Synchronous, so that it works while the process exits. If it fails, the owner counts as dead once the store is closed; in
 * other processes, once this one has ended.
 */
export function retire(folder, owner) {
  try {
    unlinkSync(join(folder, `owner.${owner}`));
  } catch {
    // It is gone already, or the file stays until then.
  }
}

/** Resolves to the owners that are alive. Removes the files of dead ones. */
export async function livingOwners(fs, folder) {
  const owners = [];
  for (const name of await fs.readdir(folder)) {
    if (!name.startsWith("owner.")) continue;
    const path = join(folder, name);
    const text = await textOf(fs, path);
    if (text === undefined) continue;
    if (await isDead(readIdentity(text, name), folder)) await removeName(fs, path);
    else owners.push(name.slice("owner.".length));
  }
  return owners;
}

/** Removes the traces of dead stores. Call it under the lock, after `settle`: only then does no lock name refer to them any more. */
export async function bury(fs, folder) {
  await livingOwners(fs, folder);
  for (const name of await fs.readdir(folder)) {
    const [, kind, instance] = /^(self|want|tmp)\.(.+)$/.exec(name) ?? [];
    if (instance === undefined) continue;
    const text = await textOf(fs, join(folder, name));
    // A store begins with its identity under a temporary name, when it listens already. What else is under such a name, or half of it, tells nothing.
    const identity = text === undefined || kind === "tmp" ? identityOf(text) : readIdentity(text, name);
    if (identity === undefined || !(await isDead(identity, folder))) continue;
    if (kind === "want") await removeName(fs, join(folder, name));
    else for (const each of [`tmp.${instance}`, `want.${instance}`, `self.${instance}`, `socket.${instance}`]) await removeName(fs, join(folder, each));
  }
}
