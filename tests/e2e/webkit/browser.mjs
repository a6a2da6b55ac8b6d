// A real WebKit for a test file: WebKitGTK, in windows on a virtual screen.
//
// Invariant: screen, driver and browser have a process group each, so that all processes of one can be killed at once.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findWebKit } from "../../../scripts/setup/webkit.mjs";
import { drive } from "../driven.mjs";
import { endWithTests } from "../ending.mjs";
import { until } from "../lossy.mjs";
import { startSession } from "./webdriver.mjs";

const execute = promisify(execFile);
/** How long the screen, and the driver, may take to start. */
const START_MS_MAX = 60_000;
const WINDOW = fileURLToPath(new URL("window.js", import.meta.url));

/**
 * Starts WebKit for a test file. `share`: the part of the disk that an origin may fill. `isPrivate`: it keeps nothing on disk, like a private window.
 */
export async function browseWebKit(after, { share, isPrivate } = {}) {
  if ((await findWebKit()) === undefined) throw new Error("There is no WebKit: install webkit2gtk-driver, gir1.2-webkit2-4.1, gjs and xvfb.");
  const screen = begin("Xvfb", ["-displayfd", "3", "-nolisten", "tcp"], { stdio: ["ignore", "ignore", "ignore", "pipe"] });
  const [number] = await once(screen.child.stdio[3], "data", { signal: AbortSignal.timeout(START_MS_MAX) });
  const env = { ...process.env, DISPLAY: `:${String(number).trim()}`, GDK_BACKEND: "x11" };
  let group;
  const browser = await drive(after, async (profile) => {
    const { send, kill, pid } = await launch(env, [WINDOW, profile, isPrivate ? "private" : String(share ?? "")]);
    group = pid;
    return { send, kill };
  });
  after(screen.kill);
  /** Does `kill -9` to the process that stores rows and speaks to the network, which iOS sometimes ends. WebDriver then loses its session. */
  const killNetwork = () => execute("pkill", ["-KILL", "-g", String(group), "WebKitNetwork"]);
  /** Resolves to the ids of the processes that show pages. The system cuts their name to 15 characters. */
  const pageProcesses = async () => (await execute("pgrep", ["-g", String(group), "-x", "WebKitWebProces"])).stdout.trim().split("\n").map(Number);
  return { browser, killNetwork, pageProcesses };
}

async function launch(env, args) {
  const port = await unusedPort();
  const { child, kill } = begin("WebKitWebDriver", [`--port=${port}`], { stdio: "ignore", env });
  const url = `http://127.0.0.1:${port}`;
  await until(() => fetch(`${url}/status`).then(() => true, () => false), "the driver listens", START_MS_MAX);
  const send = await startSession(url, { "webkitgtk:browserOptions": { binary: "gjs", args } });
  return { send, kill, pid: child.pid };
}

/** Starts a program in its own process group. Returns the process, and what ends the whole group. */
function begin(path, args, options) {
  const child = spawn(path, args, { detached: true, ...options });
  const ended = new Promise((resolve, reject) => child.on("exit", resolve).on("error", reject));
  const killGroup = () => process.kill(-child.pid, "SIGKILL");
  const isOver = endWithTests(killGroup);
  const kill = async () => {
    killGroup();
    await ended;
    isOver();
  };
  return { child, kill };
}

/** Chosen here, because the driver doesn't tell which port it has chosen itself. */
async function unusedPort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}
