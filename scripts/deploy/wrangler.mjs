// wrangler, Cloudflare's tool that uploads Workers: how it is started, what it reads, what it knows of.
//
// Invariants:
// - It runs on a Node that it supports, whichever runs this.
// - It tells nobody that it was used. Unless a person started it, it asks nothing: what is unclear is an error.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { DEPLOY } from "../setup/packages.mjs";
import { TARGET } from "../setup/paths.mjs";
import { StepError, run } from "../setup/step.mjs";

const PACKAGE = join(DEPLOY, "node_modules/wrangler");
const NODE_MIN = [22, 12];
const QUIET = {
  WRANGLER_HIDE_BANNER: "true",
  WRANGLER_LOG_PATH: join(TARGET, "wrangler/logs"),
  WRANGLER_NO_SKILLS_UPDATE_PROMPTS: "true",
  WRANGLER_SEND_ERROR_REPORTS: "false",
  WRANGLER_SEND_METRICS: "false",
};
/** What this wrangler says of a Worker that was never deployed, and what Cloudflare does. */
const NO_SUCH_WORKER = /Worker "[^"]*" not found\.|The Worker \S+ has no deployments\.|\[code: 10007\]/;

/** This Node, if it is new enough, else the one that comes with wrangler. */
export function nodeForWrangler(version = process.versions.node) {
  const [major, minor] = version.split(".").map(Number);
  if (major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1])) return process.execPath;
  const packaged = join(DEPLOY, `node_modules/node-22-${process.platform}-${process.arch}/bin/node`);
  if (existsSync(packaged)) return packaged;
  throw new StepError(`wrangler needs Node ${NODE_MIN.join(".")}, and this is ${version}.`, "Install a newer Node from https://nodejs.org.");
}

/** Runs a command of wrangler, and resolves to what it printed; where `stdio` is given, that is to the terminal. */
export async function wrangler(args, { stdio, env = { CI: "true" } } = {}) {
  return run(nodeForWrangler(), [join(PACKAGE, "bin/wrangler.js"), ...args], { env: { ...QUIET, ...env }, stdio });
}

/** The configuration in `file`, as wrangler itself understands it. */
export async function configOf(file) {
  if (!existsSync(file)) throw new StepError(`There is no ${file}.`);
  const script = `import(${JSON.stringify(join(PACKAGE, "wrangler-dist/cli.js"))}).then(({ default: { unstable_readConfig: read } }) =>
    process.stdout.write(JSON.stringify(read({ config: process.argv[1] }, { hideWarnings: true }))))`;
  const printed = await run(nodeForWrangler(), ["-e", script, file], { env: QUIET, advice: `Mend ${file}.` });
  return JSON.parse(printed);
}

/** The names of the secrets that the deployed Worker has. `ask` is `wrangler`, or a test's. */
export async function secretsAt(file, ask = wrangler) {
  const secrets = await askedOf(file, ask, ["secret", "list", "--format", "json"]);
  return (secrets ?? []).map(({ name }) => name);
}

/**
 * Where each version of the Worker that has traffic has its keys: the jurisdiction, or "" where none is set; undefined: it is a secret, whose value nobody
 * sees. One without objects of keys has none.
 */
export async function placesAt(file, ask = wrangler) {
  const places = [];
  const { versions = [] } = (await askedOf(file, ask, ["deployments", "status", "--json"])) ?? {};
  for (const { version_id: id } of versions) {
    const { bindings } = (await askedOf(file, ask, ["versions", "view", id, "--json"])).resources;
    const bound = (name) => bindings.find((binding) => binding.name === name);
    if (bound("SEMEL") === undefined) continue;
    const set = bound("SEMEL_JURISDICTION");
    places.push(set === undefined ? "" : set.text);
  }
  return places;
}

/** What wrangler tells of the Worker that is deployed; undefined: none ever was. */
async function askedOf(file, ask, args) {
  try {
    return JSON.parse(await ask([...args, "--config", file]));
  } catch (error) {
    if (!(error instanceof StepError)) throw error;
    if (NO_SUCH_WORKER.test(error.message)) return undefined;
    throw new StepError(error.message, "Log in: `npm run wrangler -- login`, or set CLOUDFLARE_API_TOKEN. Of several accounts, CLOUDFLARE_ACCOUNT_ID chooses one.");
  }
}
