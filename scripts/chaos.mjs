// `npm run chaos -- --minutes M --seed S`: runs workerd, clients in Node and a page in Chromium, with a bad network between them, and kills each of
// them. Then checks that every balance, answer and file is as it must be.
//
// The seed fixes the deposits, the order of the network's faults, and when what is killed. Which request meets which fault depends on the machine's
// timing, so a run with the same seed is similar, not the same.
//
// Invariant: the exit code is 0 only if every check holds, and 2 for wrong usage. Nothing is left running or mounted.

import { randomInt } from "node:crypto";
import { parseArgs } from "node:util";
import { installPackages } from "./setup/packages.mjs";
import { StepError, main, step } from "./setup/step.mjs";

const SEED_MAX = 2 ** 32 - 1;
const MINUTES_MAX = 24 * 60;
const SHOWN_MAX = 30;
const USAGE = `npm run chaos -- [--minutes M] [--seed S]
  M: above 0, at most ${MINUTES_MAX}; 1 unless said   S: a whole number from 0 to ${SEED_MAX}; drawn unless said`;

const asked = settings(process.argv.slice(2));
if (typeof asked === "string") {
  console.error(`${asked}\n\n${USAGE}`);
  process.exitCode = 2;
} else {
  await main(() => chaos(asked));
}

/** Returns the settings, or a text that says what is wrong with them. */
function settings(args) {
  let values;
  try {
    const options = { minutes: { type: "string", multiple: true }, seed: { type: "string", multiple: true } };
    ({ values } = parseArgs({ args, options }));
  } catch ({ message }) {
    return message;
  }
  for (const [name, given] of Object.entries(values)) if (given.length > 1) return `--${name} is given more than once`;
  const { minutes: [minutes] = ["1"], seed: [seed] = [String(randomInt(SEED_MAX))] } = values;
  if (!/^\d{1,6}(\.\d{1,6})?$/.test(minutes) || Number(minutes) === 0 || Number(minutes) > MINUTES_MAX) return `--minutes is ${JSON.stringify(minutes)}`;
  if (!/^\d{1,10}$/.test(seed) || Number(seed) > SEED_MAX) return `--seed is ${JSON.stringify(seed)}`;
  return { durationMs: Number(minutes) * 60_000, seed: Number(seed) };
}

async function chaos({ durationMs, seed }) {
  console.log(`Semel: chaos for ${durationMs / 60_000} minutes, seed ${seed}`);
  await step("npm packages", installPackages);
  const { buildWorker } = await import("./setup/worker.mjs");
  const { buildSdk } = await import("./setup/sdk.mjs");
  const { buildHelper } = await import("../tests/chaos/files.mjs");
  const { runChaos } = await import("../tests/chaos/run.mjs");
  await buildWorker("ledger");
  await buildSdk();
  await step("helper for files", buildHelper);
  const ending = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => ending.abort(new StepError(`It was ended by ${signal}.`)));
  const { violations, figures, ...counted } = await runChaos({ durationMs, seed, say: console.log, signal: ending.signal });
  console.log(`figures ${JSON.stringify({ ...figures, ...counted })}`);
  for (const violation of violations.slice(0, SHOWN_MAX)) console.log(`VIOLATED ${violation}`);
  process.exitCode = violations.length === 0 ? 0 : 1;
  console.log(violations.length === 0 ? `chaos: all holds, seed ${seed}` : `chaos: ${violations.length} violations, seed ${seed}`);
}
