// wrangler, Cloudflare's tool that uploads Workers: how it is started, and what it knows about configurations and deployments.
//
// Invariants:
// - It runs on a version of Node that it supports, whichever runs this.
// - It sends no usage data. It asks questions only if a person started it; otherwise, anything unclear is an error.

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
/** What wrangler and Cloudflare say about a Worker that was never deployed. */
const NO_SUCH_WORKER = /Worker "[^"]*" not found\.|The Worker \S+ has no deployments\.|\[code: 10007\]/;

/** The path of this Node if it is new enough, otherwise of the one that is installed with wrangler. */
export function nodeForWrangler(version = process.versions.node) {
  const [major, minor] = version.split(".").map(Number);
  if (major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1])) return process.execPath;
  const packaged = join(DEPLOY, `node_modules/node-22-${process.platform}-${process.arch}/bin/node`);
  if (existsSync(packaged)) return packaged;
  throw new StepError(`wrangler needs Node ${NODE_MIN.join(".")}, and this is ${version}.`, "Install a newer Node from https://nodejs.org.");
}

/** Runs a command of wrangler. Resolves to what it printed, unless `stdio` sends that to the terminal. */
export async function wrangler(args, { stdio, env = { CI: "true" } } = {}) {
  return run(nodeForWrangler(), [join(PACKAGE, "bin/wrangler.js"), ...args], { env: { ...QUIET, ...env }, stdio });
}

/** Resolves to the configuration in `file`, as wrangler itself reads it. */
export async function configOf(file) {
  if (!existsSync(file)) throw new StepError(`There is no ${file}.`, "Give --config the path of a wrangler.toml, from this folder on.");
  const script = `import(${JSON.stringify(join(PACKAGE, "wrangler-dist/cli.js"))}).then(({ default: { unstable_readConfig: read } }) =>
    process.stdout.write(JSON.stringify(read({ config: process.argv[1] }, { hideWarnings: true }))))`;
  const printed = await run(nodeForWrangler(), ["-e", script, file], { env: QUIET, advice: `Mend ${file}.` });
  return JSON.parse(printed);
}

/** Resolves to the names of the deployed Worker's secrets. `ask`: `wrangler`, or a test's replacement. */
export async function secretsAt(file, ask = wrangler) {
  const secrets = await askedOf(file, ask, ["secret", "list", "--format", "json"]);
  return (secrets ?? []).map(({ name }) => name);
}

/**
 * For each version of the deployed Worker that has traffic, resolves to where its keys are: the jurisdiction; "" if none is set; undefined if it is
 * a secret, whose value nobody can see. Versions without objects for keys are left out.
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

/** Resolves to what wrangler says about the deployed Worker; to undefined if there never was one. */
async function askedOf(file, ask, args) {
  try {
    return JSON.parse(await ask([...args, "--config", file]));
  } catch (error) {
    if (!(error instanceof StepError)) throw error;
    if (NO_SUCH_WORKER.test(error.message)) return undefined;
    throw new StepError(error.message, "Log in: `npm run wrangler -- login`, or set CLOUDFLARE_API_TOKEN. Of several accounts, CLOUDFLARE_ACCOUNT_ID chooses one.");
  }
}
