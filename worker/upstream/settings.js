// What the module asks of the settings, and what it has in common with who sends.

import { env } from "cloudflare:workers";

const TIMEOUT_SECONDS = 25;

/** wrangler hands JSON over as what it is. */
export function routesText() {
  const { SEMEL_UPSTREAM_ROUTES: routes } = env;
  return typeof routes === "string" ? routes : JSON.stringify(routes);
}

/** The address below which all is sent. */
export const rootOf = ({ origin, pathname }) => origin + pathname.replace(/\/$/, "");

/** What stands for where all is sent: another number wherever nobody may know of what was sent. Of bound services nothing tells one from another; what is wrong with an address, who sends says. */
export function sideNumber() {
  const { SEMEL_UPSTREAM: address, SEMEL_UPSTREAM_METHOD: name } = env;
  let hash = 0;
  for (const sign of URL.canParse(address) ? rootOf(new URL(address)) : `service ${name}`) hash = Math.imul(hash ^ sign.charCodeAt(0), 0x01000193);
  return hash;
}

/** So long a call may be under way. Who sends says whether it makes sense: where it doesn't, nobody is served. */
export function timeoutSeconds(from = env) {
  return Number(String(from.SEMEL_UPSTREAM_TIMEOUT_SECONDS ?? TIMEOUT_SECONDS));
}
