// What the module asks of the settings.

import { env } from "cloudflare:workers";

/** wrangler hands JSON over as what it is. */
export function routesText() {
  const { SEMEL_UPSTREAM_ROUTES: routes } = env;
  return typeof routes === "string" ? routes : JSON.stringify(routes);
}
