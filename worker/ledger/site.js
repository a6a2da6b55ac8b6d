// The page and its files, where a folder of them is bound as ASSETS: what Cloudflare calls the static assets of a Worker.
//
// Invariant: a request to the API costs one look at its path here, and nothing else.

/** A name with a hash of what is in it, which esbuild ends names with: such a file never changes. */
const HASHED = /^\/assets\/[^/]+-[A-Z0-9]{8}(\.[a-z0-9]+)+$/;

/** Whether a request is for the page or one of its files. */
export function isForSite(method, pathname, env) {
  if (!env.ASSETS || (method !== "GET" && method !== "HEAD")) return false;
  return ["/", "/docs", "/inspector", "/inspector/"].includes(pathname) || pathname.startsWith("/docs/") || pathname.startsWith("/assets/");
}

/** Serves a file. Content types, names without `.html` and 404 are the platform's; how long it keeps is said here. */
export async function serveSite(request, pathname, env) {
  // The page of the demonstration would have nobody to talk to.
  if (pathname === "/" && !env.NAIVE) return new Response(null, { status: 302, headers: { location: "/docs", "cache-control": "no-store" } });
  const found = await env.ASSETS.fetch(request);
  const answer = new Response(found.body, found);
  // A 404 must not stay for a year: the next deployment may have the file.
  const isForGood = HASHED.test(pathname) && found.status < 400;
  answer.headers.set("cache-control", isForGood ? "public, max-age=31536000, immutable" : "no-cache");
  answer.headers.set("x-content-type-options", "nosniff");
  // The rest of the policy is in the pages; this part counts only here. A page in a frame could be clicked unseen.
  answer.headers.set("content-security-policy", "frame-ancestors 'none'");
  return answer;
}
