// The entry for browsers, and for whatever fetches as they do: the module is fetched from beside the built file, at the first `open`.

import entry from "./semel.js";

export * from "./semel.js";
export const Semel = entry(async () => {
  const response = await fetch(new URL("./semel.wasm", import.meta.url));
  if (!response.ok) throw new Error(`semel: ${response.url} answers ${response.status}`);
  return response.arrayBuffer();
}, () => import("./session-browser.js"));
