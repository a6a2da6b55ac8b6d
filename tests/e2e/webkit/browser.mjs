// A real WebKit for a test file: WebKitGTK, in windows on a virtual screen.
//
// Invariant: screen, driver and browser have a process group each, so that all processes of one can be killed at once.

import { execFile, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { connect } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findWebKit } from "../../../scripts/setup/webkit.mjs";
import { drive } from "../driven.mjs";
import { endWithTests, orEnd } from "../ending.mjs";
import { until } from "../lossy.mjs";
import { startSession } from "./webdriver.mjs";

const execute = promisify(execFile);
/** How long the screen, the browser and the driver may each take to start. */
const START_MS_MAX = 60_000;
/** Services of the system have lower ports. */
const PORT_MIN = 10_000;
const WINDOW = fileURLToPath(new URL("window.js", import.meta.url));

/**
 * Starts WebKit for a test file. `share`: the part of the disk that an origin may fill. `isPrivate`: it keeps nothing on disk, like a private window.
 * `preload`: more variables of its environment.
 */
export async function browseWebKit(after, { share, isPrivate, preload } = {}) {
  if ((await findWebKit()) === undefined) throw new Error("There is no WebKit: install webkit2gtk-driver, gir1.2-webkit2-4.1, gjs and xvfb.");
  const screen = begin("Xvfb", ["-displayfd", "3", "-nolisten", "tcp"], { stdio: ["ignore", "ignore", "ignore", "pipe"] });
  const [number] = await once(screen.child.stdio[3], "data", { signal: AbortSignal.timeout(START_MS_MAX) });
  const env = { ...process.env, DISPLAY: `:${String(number).trim()}`, GDK_BACKEND: "x11" };
  let group;
  const driven = drive(after, async (profile) => {
    const { send, kill, pid } = await launch({ ...env, ...preload }, [WINDOW, profile, isPrivate ? "private" : String(share ?? "")]);
    group = pid;
    return { send, kill };
  });
  const browser = await orEnd(driven, screen.kill);
  after(screen.kill);
  /** Does `kill -9` to the process that stores rows and speaks to the network, which iOS sometimes ends. WebDriver then loses its session. */
  const killNetwork = () => execute("pkill", ["-KILL", "-g", String(group), "WebKitNetwork"]);
  /** Resolves to the ids of the processes that show pages. The system cuts their name to 15 characters. */
  const pageProcesses = async () => (await execute("pgrep", ["-g", String(group), "-x", "WebKitWebProces"])).stdout.trim().split("\n").map(Number);
  return { browser, killNetwork, pageProcesses };
}

/** Starts the browser first, then the driver: a driver that starts the browser itself takes a port for it that another program may get meanwhile. */
async function launch(env, args) {
  const [own, control] = [await unusedPort(), await unusedPort()];
  const target = `127.0.0.1:${own}`;
  const begun = [begin("gjs", args, { stdio: "ignore", env: { ...env, WEBKIT_INSPECTOR_SERVER: target } })];
  const kill = () => Promise.all(begun.map(({ kill }) => kill()));
  try {
    await until(() => listens(own), "the browser listens", START_MS_MAX);
    begun.push(begin("WebKitWebDriver", [`--port=${control}`, `--target=${target}`], { stdio: "ignore", env }));
    await until(() => listens(control), "the driver listens", START_MS_MAX);
    const send = await startSession(`http://127.0.0.1:${control}`);
    return { send, kill, pid: begun[0].child.pid };
  } catch (error) {
    await kill();
    throw error;
  }
}

/** Starts a program in its own process group. Returns the process, and what ends the whole group. */
function begin(path, args, options) {
  const child = spawn(path, args, { detached: true, ...options });
  const ended = new Promise((resolve, reject) => child.on("exit", resolve).on("error", reject));
  const killGroup = () => {
    try {
      process.kill(-child.pid, "SIGKILL");
    } catch ({ code, message }) {
      // It has ended by itself. Why it had to be ended matters more.
      if (code !== "ESRCH") throw new Error(`${path} can't be ended: ${message}`);
    }
  };
  const isOver = endWithTests(killGroup);
  const kill = async () => {
    killGroup();
    await ended;
    isOver();
  };
  return { child, kill };
}

/**
 * Chosen here, because neither browser nor driver tells which port it has chosen itself. It is not one of those that the system gives to whoever asks
 * for any: such a port may be another program's before ours listens at it.
 */
async function unusedPort() {
  const range = await readFile("/proc/sys/net/ipv4/ip_local_port_range", "utf8");
  const given = Number.parseInt(range, 10);
  for (;;) {
    const port = randomInt(PORT_MIN, given);
    if (!(await listens(port))) return port;
  }
}

/** Resolves to whether a program listens at this port. */
async function listens(port) {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
