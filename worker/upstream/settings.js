// The settings that both the module and origin.js read.

import { env } from "cloudflare:workers";

const TIMEOUT_SECONDS = 25;

/** The routes as JSON text. wrangler hands JSON over as an object. */
export function routesText() {
  const { SEMEL_UPSTREAM_ROUTES: routes } = env;
  return typeof routes === "string" ? routes : JSON.stringify(routes);
}

/** The address below which all requests are sent. */
export const rootOf = ({ origin, pathname }) => origin + pathname.replace(/\/$/, "");

/**
 * A number that stands for the upstream: it changes if requests would go to another one, which knows nothing of those sent before. Bound services can't be
 * told apart. An invalid address is reported by origin.js.
 */
export function sideNumber() {
  const { SEMEL_UPSTREAM: address, SEMEL_UPSTREAM_METHOD: name } = env;
  let hash = 0;
  for (const sign of URL.canParse(address) ? rootOf(new URL(address)) : `service ${name}`) hash = Math.imul(hash ^ sign.charCodeAt(0), 0x01000193);
  return hash;
}

/** The time limit of a call. origin.js checks that it is valid; if it is not, no request is served. */
export function timeoutSeconds(from = env) {
  return Number(String(from.SEMEL_UPSTREAM_TIMEOUT_SECONDS ?? TIMEOUT_SECONDS));
}
