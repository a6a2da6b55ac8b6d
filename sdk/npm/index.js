// The entry for browsers, and for whatever fetches as they do: the module is fetched from beside this file, at the first `open`.

import shared from "./semel.js";

export * from "./semel.js";

async function fetchModule() {
  const response = await fetch(new URL("./semel.wasm", import.meta.url));
  if (!response.ok) throw new Error(`semel: ${response.url} answers ${response.status}`);
  return shared.glue(await response.arrayBuffer());
}

let loaded;

/** Once for all that are opened. What failed, for want of a network say, is tried again at the next `open`. */
const load = () => {
  loaded ??= fetchModule().catch((error) => {
    loaded = undefined;
    throw error;
  });
  return loaded;
};

export class Semel extends shared.Outbox {
  static open(options) {
    return super.open(options, load);
  }
}
