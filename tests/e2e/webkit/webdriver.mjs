// WebDriver, the protocol that controls WebKit from outside: its commands over HTTP, by the names in the specification.

/** How long a command may take. A script's own limit is half of it, by the specification. */
const COMMAND_MS_MAX = 60_000;
const COMMANDS = {
  Back: ["POST", "back"],
  CloseWindow: ["DELETE", "window"],
  ExecuteAsyncScript: ["POST", "execute/async"],
  GetWindowHandle: ["GET", "window"],
  Navigate: ["POST", "url"],
  NewWindow: ["POST", "window/new"],
  Refresh: ["POST", "refresh"],
  SwitchToFrame: ["POST", "frame"],
  SwitchToWindow: ["POST", "window"],
  TakeScreenshot: ["GET", "screenshot"],
};

/** Starts a session. Resolves to `send(command, parameters)`, which resolves to the command's result. */
export async function startSession(url) {
  const { sessionId } = await exchange(`${url}/session`, "POST", { capabilities: {} });
  return (command, parameters = {}) => {
    const [method, path] = COMMANDS[command];
    return exchange(`${url}/session/${sessionId}/${path}`, method, method === "POST" ? parameters : undefined);
  };
}

async function exchange(url, method, parameters) {
  const signal = AbortSignal.timeout(COMMAND_MS_MAX);
  const response = await fetch(url, { method, body: parameters && JSON.stringify(parameters), signal }).catch((cause) => {
    throw new Error(`${method} ${url} has no answer`, { cause });
  });
  const { value } = await response.json();
  if (!response.ok) throw new Error(`${method} ${url}: ${value.error}: ${value.message}`);
  return value;
}
