// Finds what speaks against deploying with given settings. The Worker checks them again at its first request; here they are checked while the old
// deployment still serves.
//
// Invariant: no message contains a value, because it may be a secret.

import { createPublicKey } from "node:crypto";

/** All settings of a deployment. docs/operations.md has the same list. */
export const SETTINGS = [
  "SEMEL_OPEN",
  "SEMEL_JURISDICTION",
  "SEMEL_RETENTION_SECONDS",
  "SEMEL_RECORDS_MAX",
  "SEMEL_TOMBSTONES_MAX",
  "SEMEL_SESSIONS_MAX",
  "SEMEL_BYTES_MAX",
  "SEMEL_KEY_RULES",
  "SEMEL_JWT_KEYS",
  "SEMEL_JWKS_URL",
  "SEMEL_JWT_ISSUER",
  "SEMEL_JWT_AUDIENCE",
  "SEMEL_ADMIN_TOKEN",
  "SEMEL_ORIGINS",
  "SEMEL_RATE_PER_SECOND",
  "SEMEL_RATE_BURST",
  "SEMEL_LOG_SAMPLE",
  "SEMEL_REPORT_SECONDS",
];

const ADMIN_TOKEN_CHARS_MIN = 16;

/**
 * Returns `{ wrong, missing, noted }`, each a list of sentences. `vars`: the variables of the configuration, and `given`: the secrets of this
 * deployment, both by name. `there`: the names of what is deployed already. `places`: the jurisdictions in which the deployed Worker has its keys.
 * What is `missing` may be deployed already in a dry run, which does not ask.
 */
export function judge({ vars, given = {}, there = [], places = [], isOpenMeant = false, isEmptyMeant = false }) {
  const wrong = [];
  const missing = [];
  const noted = [];
  const names = new Set([...Object.keys(vars), ...Object.keys(given), ...there]);
  // Read as the Worker does: a boolean or a number of TOML counts as its text.
  const valueOf = (name) => (given[name] ?? vars[name])?.toString();
  // An empty setting counts as not set.
  const has = (name) => (there.includes(name) && !(name in given)) || (valueOf(name) ?? "") !== "";
  const hasKeys = has("SEMEL_JWT_KEYS") || has("SEMEL_JWKS_URL");

  for (const name of names) {
    if (name.startsWith("SEMEL_") && !SETTINGS.includes(name)) wrong.push(`${name} is no setting: a name that is not known would change nothing.`);
  }
  if ("SEMEL_ADMIN_TOKEN" in vars) wrong.push("SEMEL_ADMIN_TOKEN is among the vars, which everybody reads who sees the file or the dashboard: make it a secret.");
  if (given.SEMEL_ADMIN_TOKEN?.length < ADMIN_TOKEN_CHARS_MIN) wrong.push(`SEMEL_ADMIN_TOKEN is too short: it has at least ${ADMIN_TOKEN_CHARS_MIN} characters.`);
  wrong.push(...keysOf(vars, given));

  const isOpen = valueOf("SEMEL_OPEN") === "true";
  if (!["true", "false", undefined].includes(valueOf("SEMEL_OPEN"))) wrong.push("SEMEL_OPEN is neither true nor false: the Worker would serve nobody, because it does not guess.");
  if (isOpen && !isOpenMeant) wrong.push("SEMEL_OPEN is true: everybody would be served, under whatever name they give. Add --open if you want that.");
  if (isOpen && hasKeys) wrong.push("SEMEL_OPEN is true and there are keys: the Worker would serve nobody, because it can't tell which of them you want.");
  if (there.includes("SEMEL_OPEN") && !("SEMEL_OPEN" in given)) wrong.push("SEMEL_OPEN is a secret at the deployment, and nobody sees whether it is true: delete it there.");
  if (!isOpen) {
    if (!hasKeys) missing.push("SEMEL_JWT_KEYS or SEMEL_JWKS_URL: without either, nobody is served.");
    else if (!has("SEMEL_JWT_AUDIENCE")) wrong.push("SEMEL_JWT_AUDIENCE is missing: it says which tokens are meant for this deployment.");
  }
  // A deployed secret that is not given again stays what it was.
  const isUnseen = there.includes("SEMEL_JURISDICTION") && !("SEMEL_JURISDICTION" in given);
  const place = isUnseen ? undefined : (valueOf("SEMEL_JURISDICTION") ?? "");
  if (!isEmptyMeant && places.some((each) => each !== place)) {
    wrong.push("SEMEL_JURISDICTION differs from that of the existing deployment: every key would begin empty, and what was executed would be executed again. Add --begin-empty if you want that.");
  }
  if (!has("SEMEL_ADMIN_TOKEN")) noted.push("There is no SEMEL_ADMIN_TOKEN: every path of the administrator, and the inspector, will answer 401.");
  return { wrong, missing, noted };
}

/** What is wrong with the key set. The Worker needs public halves; a key that can sign must be a secret. */
function keysOf(vars, given) {
  const value = given.SEMEL_JWT_KEYS ?? vars.SEMEL_JWT_KEYS;
  if (value === undefined) return [];
  let keys;
  try {
    ({ keys } = typeof value === "string" ? JSON.parse(value) : value);
  } catch {
    // Text that is no JSON is reported below, like a set without keys.
  }
  if (!Array.isArray(keys) || keys.length === 0) return ["SEMEL_JWT_KEYS is no JWK set: {\"keys\":[…]} with at least one key."];
  const wrong = [];
  if (keys.some((key) => typeof key?.kid !== "string")) wrong.push("SEMEL_JWT_KEYS has a key without a kid: keys are rotated by it.");
  if (keys.some((key) => key?.kty !== "oct" && !isKey(key))) wrong.push("SEMEL_JWT_KEYS has an invalid public key: a part of it is wrong or missing. Its tokens would be answered with 503.");
  if (keys.some((key) => key?.d !== undefined)) wrong.push("SEMEL_JWT_KEYS has a private key (d): the Worker needs only the public half.");
  if ("SEMEL_JWT_KEYS" in vars && keys.some((key) => key?.kty === "oct")) wrong.push("SEMEL_JWT_KEYS is among the vars and has an oct key, which signs as well as it checks: make it a secret.");
  return wrong;
}

/** Whether a public key can be read. The Worker would find out only when the first token signed by it comes. */
function isKey(key) {
  try {
    createPublicKey({ key, format: "jwk" });
    return true;
  } catch {
    return false;
  }
}
