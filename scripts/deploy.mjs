// `npm run deploy`: builds the worker and the pages, checks the settings, and uploads everything with wrangler.
//
// Invariants:
// - Every objection is made before anything is uploaded; and before anything is built, if it can be found without the Worker.
// - With --dry-run, nobody is asked and nothing is uploaded; --outdir keeps what would be.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { unreadable } from "./deploy/reading.mjs";
import { judge } from "./deploy/settings.mjs";
import { configOf, placesAt, secretsAt, wrangler } from "./deploy/wrangler.mjs";
import { checkMachine } from "./setup/machine.mjs";
import { DEPLOY, installPackages } from "./setup/packages.mjs";
import { ROOT } from "./setup/paths.mjs";
import { StepError, main, step } from "./setup/step.mjs";
import { WORKERS, buildWorker, workerFolder } from "./setup/worker.mjs";

const OPTIONS = {
  config: { type: "string", default: join(ROOT, "wrangler.toml") },
  "secrets-file": { type: "string" },
  open: { type: "boolean", default: false },
  "begin-empty": { type: "boolean", default: false },
  "dry-run": { type: "boolean", default: false },
  outdir: { type: "string" },
  message: { type: "string" },
};

await main(async () => {
  const options = optionsOf(process.argv.slice(2));
  const file = resolve(options.config);
  await step("this machine", checkMachine);
  await step("npm packages", installPackages);
  await step("wrangler", () => installPackages(DEPLOY));
  let config;
  let secrets;
  let places = [];
  let said;
  await step("settings", async () => {
    config = await configOf(file);
    secrets = { given: await secretsOf(options), there: options["dry-run"] ? [] : await secretsAt(file) };
    if (!options["dry-run"]) places = await placesAt(file);
    said = checkSettings(config, { ...secrets, places }, options);
    return said.length === 0 ? "nothing is wrong with them" : "please note:";
  });
  for (const text of said) console.log(`    ${text}`);
  const worker = workerOf(config);
  await buildWorker(worker);
  await step("settings, as the Worker reads them", () => checkReading(config, worker, secrets));
  const { buildWww } = await import("./setup/www.mjs");
  await buildWww();
  const kept = ["secrets-file", "outdir", "message"].flatMap((name) => (options[name] === undefined ? [] : [`--${name}`, options[name]]));
  // At a terminal, wrangler may ask: whether to overwrite changes made in the dashboard, say.
  const shown = options["dry-run"] ? { stdio: ["ignore", "inherit", "inherit"] } : { stdio: "inherit", env: {} };
  await wrangler(["deploy", "--config", file, ...(options["dry-run"] ? ["--dry-run"] : []), ...kept], shown);
});

function optionsOf(args) {
  try {
    return parseArgs({ args, options: OPTIONS }).values;
  } catch (error) {
    throw new StepError(error.message, `The options are ${Object.keys(OPTIONS).map((name) => `--${name}`).join(", ")}.`);
  }
}

/** Returns notes on the settings. Throws if anything speaks against them. */
function checkSettings({ vars }, known, options) {
  const { wrong, missing, noted } = judge({ vars, ...known, isOpenMeant: options.open, isEmptyMeant: options["begin-empty"] });
  const refused = options["dry-run"] ? wrong : [...wrong, ...missing];
  if (refused.length > 0) throw new StepError(["These settings are not deployed:", ...refused].join("\n  "), "docs/operations.md tells how settings and secrets are made.");
  // A dry run does not ask which secrets are deployed, so what it misses may be there.
  return [...missing.map((text) => `Missing, unless it was deployed before: ${text}`), ...noted];
}

/** Throws if the Worker would serve nobody with these settings. */
async function checkReading({ vars }, worker, secrets) {
  const why = await unreadable(workerFolder(worker), { vars, ...secrets });
  if (why !== undefined) throw new StepError(`These settings are not deployed, because the Worker would serve nobody with them:\n  ${why}.`, "README.md says what each may be.");
}

/** The secrets by name, from a JSON file in the form that wrangler takes, too. */
async function secretsOf({ "secrets-file": path }) {
  if (path === undefined) return {};
  if (!existsSync(path)) throw new StepError(`There is no ${path}.`, "Give --secrets-file the path of the secrets, from this folder on; docs/operations.md says how to make them.");
  const text = await readFile(path, "utf8");
  try {
    const secrets = JSON.parse(text);
    if (secrets.constructor === Object && Object.values(secrets).every((value) => typeof value === "string")) return secrets;
  } catch {
    // The file's text is not shown, because it may contain a secret.
  }
  throw new StepError(`${path} is no JSON object of texts.`, 'Write {"SEMEL_ADMIN_TOKEN":"…","SEMEL_JWT_KEYS":"{\\"keys\\":[…]}"}: a value that is JSON itself is a text here.');
}

/** Returns which worker a configuration uploads, so that it can be built. */
function workerOf({ main: entry }) {
  const name = basename(dirname(entry));
  if (name in WORKERS) return name;
  throw new StepError(`${entry} is not a worker that can be built here.`, `Here "main" is build/NAME/index.js, where NAME is one of ${Object.keys(WORKERS).join(", ")}. What has a handler of your own is uploaded by wrangler: docs/operations.md#a-worker-of-your-own.`);
}
