// What the module asks of the settings, and what it has in common with who sends.

import { env } from "cloudflare:workers";

const TIMEOUT_SECONDS = 25;

/** wrangler hands JSON over as what it is. */
export function routesText() {
  const { SEMEL_UPSTREAM_ROUTES: routes } = env;
  return typeof routes === "string" ? routes : JSON.stringify(routes);
}

/** So long a call may be under way. Who sends says whether it makes sense: where it doesn't, nobody is served. */
export function timeoutSeconds(from = env) {
  return Number(String(from.SEMEL_UPSTREAM_TIMEOUT_SECONDS ?? TIMEOUT_SECONDS));
}
