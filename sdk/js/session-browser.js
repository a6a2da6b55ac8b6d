// Sessions in browsers: the module is fetched from beside this file, at the first one.

import { sessions } from "./session.js";

export default sessions(async () => {
  const response = await fetch(new URL("./session.wasm", import.meta.url));
  if (!response.ok) throw new Error(`semel: ${response.url} answers ${response.status}`);
  return response.arrayBuffer();
});
