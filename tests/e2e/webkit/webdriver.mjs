// WebDriver, the protocol that controls WebKit from outside: its commands over HTTP, by the names in the specification.

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

/** Starts a session. Resolves to `send(command, parameters)`, which resolves to the command's result. `options`: of the browser. */
export async function startSession(url, options) {
  const { sessionId } = await exchange(`${url}/session`, "POST", { capabilities: { alwaysMatch: options } });
  return (command, parameters = {}) => {
    const [method, path] = COMMANDS[command];
    return exchange(`${url}/session/${sessionId}/${path}`, method, method === "POST" ? parameters : undefined);
  };
}

async function exchange(url, method, parameters) {
  const response = await fetch(url, { method, body: parameters && JSON.stringify(parameters) });
  const { value } = await response.json();
  if (!response.ok) throw new Error(`${method} ${url}: ${value.error}: ${value.message}`);
  return value;
}
