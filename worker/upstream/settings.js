// What the module asks of the settings.

import { env } from "cloudflare:workers";

export const routesText = () => env.SEMEL_UPSTREAM_ROUTES;
