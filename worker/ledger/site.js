// Serves the pages and their files, if a folder of them is bound as ASSETS (a Worker's static assets, as Cloudflare calls them).
//
// Invariant: for a request to the API, this costs one look at its path and nothing else.

/** Names that end with a hash of the content, as esbuild makes them: such a file never changes. */
const HASHED = /^\/assets\/[^/]+-[A-Z0-9]{8}(\.[a-z0-9]+)+$/;

/** Whether a request is for the page or one of its files. */
export function isForSite(method, pathname, env) {
  if (!env.ASSETS || (method !== "GET" && method !== "HEAD")) return false;
  return ["/", "/docs", "/inspector", "/inspector/"].includes(pathname) || pathname.startsWith("/docs/") || pathname.startsWith("/assets/");
}

/** Serves a file. The platform finds it and sets its content type; caching and security headers are set here. */
export async function serveSite(request, pathname, env) {
  // Without the naive ledger, the demonstration's page would have no server to talk to.
  if (pathname === "/" && !env.NAIVE) return new Response(null, { status: 302, headers: { location: "/docs", "cache-control": "no-store" } });
  const found = await env.ASSETS.fetch(request);
  const answer = new Response(found.body, found);
  // A 404 must not be cached for a year: the next deployment may have the file.
  const isForGood = HASHED.test(pathname) && found.status < 400;
  answer.headers.set("cache-control", isForGood ? "public, max-age=31536000, immutable" : "no-cache");
  answer.headers.set("x-content-type-options", "nosniff");
  // The rest of the policy is in the pages, but this part works only as a header. It prevents clickjacking by a frame.
  answer.headers.set("content-security-policy", "frame-ancestors 'none'");
  return answer;
}
