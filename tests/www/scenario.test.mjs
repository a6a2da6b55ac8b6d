// Tests how the page's address is read as a scenario, and how a scenario becomes an address.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DELAY_MS_MAX, RUN_CLICKS } from "../../www/lab/limits.js";
import { FIRST, LIMITS, PRESETS, fragmentOf, scenarioOf } from "../../www/lab/scenario.js";
import { seeded } from "./fakes.mjs";

const CALM = { loseRequests: 0, loseAnswers: 0, twice: 0, delay: 0, offline: 0 };

test("every preset is the same after it was turned into a link and read again", () => {
  for (const { id, scenario } of PRESETS) {
    const { run, kill, crash, ...settings } = scenario;
    assert.deepEqual(scenarioOf(fragmentOf(scenario)), { settings, run: { total: run, kill, crash } }, id);
  }
});

test("presets are distinct and within the limits, and exactly those that kill the server are local", () => {
  assert.equal(new Set(PRESETS.map(({ id }) => id)).size, PRESETS.length);
  assert.equal(new Set(PRESETS.map(({ scenario }) => fragmentOf(scenario))).size, PRESETS.length);
  for (const { id, scenario, isLocal = false } of PRESETS) {
    assert.equal(scenario.run, RUN_CLICKS, id);
    assert.equal(isLocal, scenario.kill !== undefined, id);
    for (const [name, max] of Object.entries(LIMITS)) assert.ok(scenario[name] >= 0 && scenario[name] <= max, `${id}: ${name}`);
    for (const at of [scenario.kill, scenario.crash]) assert.ok(at === undefined || (at > 0 && at < scenario.run), id);
  }
});

test("any settings are the same after they were turned into an address and read again, without a run", () => {
  const random = seeded(3);
  for (let k = 0; k < 200; k += 1) {
    const settings = Object.fromEntries(Object.entries(LIMITS).map(([name, max]) => [name, random() < 0.3 ? 0 : Math.floor(random() * (max + 1))]));
    assert.deepEqual(scenarioOf(fragmentOf(settings)), { settings, run: undefined });
  }
});

test("an address names every setting that is not 0, and lose-requests=0 if all are 0", () => {
  assert.equal(fragmentOf({ ...CALM, loseRequests: 33, loseAnswers: 20, twice: 10, delay: 400, offline: 1, run: 5, kill: 2, crash: 3 }), "#lose-requests=33&lose-answers=20&twice=10&delay=400&offline=1&run=5&kill=2&crash=3");
  assert.equal(fragmentOf({ ...CALM, delay: 5 }), "#delay=5");
  assert.equal(fragmentOf(CALM), "#lose-requests=0");
  assert.equal(fragmentOf({ ...CALM, run: 9 }), "#run=9&lose-requests=0");
});

test("an address that sets any setting has the others at 0", () => {
  for (const fragment of ["#twice=5", "twice=5", "#twice=5&unknown=1&=&&"]) assert.deepEqual(scenarioOf(fragment), { settings: { ...CALM, twice: 5 }, run: undefined }, fragment);
  assert.deepEqual(scenarioOf("#offline=0").settings, CALM);
});

test("an address that sets no setting gives the current ones, or else those of a first visit", () => {
  assert.deepEqual(FIRST, { ...CALM, loseRequests: 33, loseAnswers: 33 });
  const now = { ...CALM, twice: 40, offline: 1 };
  for (const fragment of ["", "#", "#lab", "#unknown=1", "#%", "#%E0%A4%A=1", "#Twice=5", "#loseRequests=5"]) {
    assert.deepEqual(scenarioOf(fragment), { settings: FIRST, run: undefined }, fragment);
    assert.deepEqual(scenarioOf(fragment, now), { settings: now, run: undefined }, fragment);
  }
  assert.deepEqual(scenarioOf("#run=5", now), { settings: now, run: { total: 5, kill: undefined, crash: undefined } });
  assert.deepEqual(scenarioOf("#delay=5", now).settings, { ...CALM, delay: 5 });
});

test("the settings that are read from an address are a copy: changing them changes no defaults", () => {
  const { settings } = scenarioOf("");
  settings.twice = 50;
  assert.equal(FIRST.twice, 0);
  const calm = scenarioOf("#twice=0").settings;
  calm.twice = 50;
  assert.equal(scenarioOf("#twice=0").settings.twice, 0);
});

test("a value in an address that is too large is set to its limit, however large it is", () => {
  const limits = { "lose-requests": ["loseRequests", 90], "lose-answers": ["loseAnswers", 90], twice: ["twice", 100], delay: ["delay", DELAY_MS_MAX], offline: ["offline", 1] };
  for (const [parameter, [name, max]] of Object.entries(limits)) {
    for (const value of [max, max + 1, 999_999, "10000000", "9".repeat(400)]) assert.equal(scenarioOf(`#${parameter}=${value}`).settings[name], max, `${parameter}=${value}`);
    assert.equal(scenarioOf(`#${parameter}=${max - 1}`).settings[name], max - 1);
  }
  const { total, kill, crash } = scenarioOf(`#run=${RUN_CLICKS + 1}&kill=99999999&crash=${RUN_CLICKS}`).run;
  assert.deepEqual([total, kill, crash], [RUN_CLICKS, RUN_CLICKS, RUN_CLICKS]);
});

test("an invalid value in an address is ignored, and the rest is read", () => {
  for (const value of ["", "x", "-3", "+3", "1.5", "1e2", " 1", "0x10", "1,2", "NaN", "Infinity", "٣"]) {
    assert.deepEqual(scenarioOf(`#twice=${encodeURIComponent(value)}&delay=7`).settings, { ...CALM, delay: 7 }, value);
    assert.deepEqual(scenarioOf(`#twice=${encodeURIComponent(value)}`).settings, FIRST, "and is no setting that was asked for");
  }
  assert.equal(scenarioOf("#twice=1&twice=2").settings.twice, 1);
  assert.equal(scenarioOf("#twice=007").settings.twice, 7);
});

test("an address gives a run its clicks, its kill and its crash, and without clicks there is no run", () => {
  assert.deepEqual(scenarioOf("#run=20&kill=5&crash=9").run, { total: 20, kill: 5, crash: 9 });
  assert.deepEqual(scenarioOf("#run=20").run, { total: 20, kill: undefined, crash: undefined });
  for (const fragment of ["#run=0", "#run=x", "#kill=5&crash=9", "#run="]) assert.equal(scenarioOf(fragment).run, undefined, fragment);
});
