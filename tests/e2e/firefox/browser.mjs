// A real Firefox for a test file.
//
// Invariant: the browser is its own process group, so that all of it can be killed at once.

import { spawn } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { drive } from "../driven.mjs";
import { endWithTests } from "../ending.mjs";
import { until } from "../lossy.mjs";
import { startSession } from "./marionette.mjs";

/** The browser asks nothing of anybody, and shows nothing after a crash. */
const PREFERENCES = {
  "marionette.port": 0,
  "app.normandy.enabled": false,
  "browser.sessionstore.resume_from_crash": false,
  "datareporting.policy.dataSubmissionEnabled": false,
  "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false,
  "toolkit.startup.max_resumed_crashes": -1,
};

/** Starts Firefox for a test file: the program at `path`, with additional `preferences`. */
export function browseFirefox(after, path, preferences) {
  return drive(after, (profile) => launch(path, profile, { ...PREFERENCES, ...preferences }));
}

async function launch(path, profile, preferences) {
  const lines = Object.entries(preferences).map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`);
  await writeFile(join(profile, "user.js"), lines.join(""));
  const portFile = join(profile, "MarionetteActivePort");
  await rm(portFile, { force: true });
  const env = { ...process.env, MOZ_CRASHREPORTER_DISABLE: "1" };
  const child = spawn(path, ["--headless", "--no-remote", "--marionette", "--profile", profile], { detached: true, stdio: "ignore", env });
  const ended = new Promise((resolve, reject) => child.on("exit", resolve).on("error", reject));
  const killGroup = () => process.kill(-child.pid, "SIGKILL");
  const isOver = endWithTests(killGroup);
  const port = await until(async () => Number(await readFile(portFile, "utf8").catch(() => 0)), "Firefox listens", 60_000);
  const session = await startSession(port);
  const kill = async () => {
    killGroup();
    await ended;
    isOver();
    session.close();
  };
  return { send: session.send, kill };
}
