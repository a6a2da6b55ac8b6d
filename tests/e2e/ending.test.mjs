// What a test file has started is ended with it, although the runner ends the file.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { until } from "./lossy.mjs";

/** A file that fails before it tells its number would be waited for. */
const LIMIT = { timeout: 60_000 };
const FOLDER = fileURLToPath(new URL(".", import.meta.url));
const FILES = {
  "a process is ended with its file, although one that was started before it is gone": `
    import { spawn } from "node:child_process";
    import { once } from "node:events";
    import { endWithTests } from "./ending.mjs";
    const begin = () => spawn("sleep", ["600"], { detached: true, stdio: "ignore" });
    const killGroup = ({ pid }) => process.kill(-pid, "SIGKILL");
    const [gone, lasting] = [begin(), begin()];
    for (const each of [gone, lasting]) endWithTests(() => killGroup(each));
    killGroup(gone);
    await once(gone, "exit");
    console.log(lasting.pid);`,
  "a server is ended with its file": `
    import { serve } from "./server.mjs";
    let server;
    await serve(() => {}, "ledger", {}, { onSpawn: (pid) => (server = pid) });
    console.log(server);`,
};

for (const [name, source] of Object.entries(FILES)) {
  test(name, LIMIT, async () => {
    const file = spawn(process.execPath, ["--input-type=module", "-e", `${source}\nsetInterval(() => {}, 1000);`], { cwd: FOLDER, stdio: ["ignore", "pipe", "ignore"] });
    const [line] = await once(file.stdout.setEncoding("utf8"), "data");
    const pid = Number(line);
    assert.ok(lives(pid));
    file.kill("SIGTERM");
    assert.deepEqual(await once(file, "exit"), [1, null]);
    await until(() => !lives(pid), "it is gone");
  });
}

/** A process that has ended has no number any more, once the system has reaped it. */
function lives(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
