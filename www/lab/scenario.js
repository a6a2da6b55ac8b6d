// The settings of the network and what a run does, as they are in the address: a link is a scenario.
//
// Invariants:
// - A value in an address that is too large is reduced to its limit; an unknown parameter is ignored.
// - A run starts once: the address that a reload finds no longer asks for it.

import { DELAY_MS_MAX, RUN_CLICKS } from "./limits.js";

/** The largest value of each setting. `offline` is 0 or 1. */
export const LIMITS = { loseRequests: 90, loseAnswers: 90, twice: 100, delay: DELAY_MS_MAX, offline: 1 };
/** What may happen during a run: the largest number of the click after which it happens. */
const ON_THE_WAY = { run: RUN_CLICKS, kill: RUN_CLICKS, crash: RUN_CLICKS };
const NAMES = { loseRequests: "lose-requests", loseAnswers: "lose-answers", twice: "twice", delay: "delay", offline: "offline", run: "run", kill: "kill", crash: "crash" };

const CALM = { loseRequests: 0, loseAnswers: 0, twice: 0, delay: 0, offline: 0 };
/** What a new visitor finds. */
export const FIRST = { ...CALM, loseRequests: 33, loseAnswers: 33 };

export const PRESETS = [
  { id: "third", title: "A third of everything lost", scenario: { ...FIRST, run: 100 } },
  { id: "answers", title: "Every second answer lost", scenario: { ...CALM, loseAnswers: 50, run: 100 } },
  { id: "twice", title: "Everything sent twice", scenario: { ...CALM, twice: 100, run: 100 } },
  { id: "slow", title: "Slower than the timeout", scenario: { ...CALM, delay: 4000, run: 100 } },
  { id: "crash", title: "The page crashes half way", scenario: { ...FIRST, run: 100, crash: 50 } },
  { id: "kill", title: "The server crashes half way", scenario: { ...FIRST, run: 100, kill: 50 }, isLocal: true },
  { id: "worst", title: "All of it at once", scenario: { ...FIRST, twice: 20, delay: 1500, run: 100, kill: 40, crash: 70 }, isLocal: true },
  { id: "calm", title: "Nothing goes wrong", scenario: { ...CALM, run: 100 } },
];

/** Reads a fragment such as `#lose-requests=33&run=100`. If it names no setting, the settings stay as they are in `asIs`. */
export function scenarioOf(fragment, asIs = FIRST) {
  const parameters = new URLSearchParams(fragment.replace(/^#/, ""));
  const scenario = {};
  for (const [name, max] of Object.entries({ ...LIMITS, ...ON_THE_WAY })) {
    const text = parameters.get(NAMES[name]);
    if (text !== null && /^\d+$/.test(text)) scenario[name] = Math.min(Number(text), max);
  }
  const isAsked = Object.keys(LIMITS).some((name) => name in scenario);
  const settings = isAsked ? { ...CALM } : { ...asIs };
  for (const name of Object.keys(LIMITS)) settings[name] = scenario[name] ?? settings[name];
  const { run, kill, crash } = scenario;
  return { settings, run: run ? { total: run, kill, crash } : undefined };
}

/** The fragment of a scenario. Zeros are left out, unless all settings are 0. */
export function fragmentOf(scenario) {
  const parameters = new URLSearchParams();
  for (const [name, parameter] of Object.entries(NAMES)) if (scenario[name]) parameters.set(parameter, scenario[name]);
  if (!Object.keys(LIMITS).some((name) => scenario[name])) parameters.set(NAMES.loseRequests, 0);
  return `#${parameters}`;
}
