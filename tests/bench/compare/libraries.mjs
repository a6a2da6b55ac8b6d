// The libraries of the comparison: for each its adapter, its packages, and how it is run.

/**
 * - `adapter`: the file in `adapters/` to bundle; `worker`: the same for a service worker
 * - `packages`: those that the library's documentation installs; their versions are recorded, and replace `{…}` in `name`
 * - `backend`: the server that it talks to; without one, only its size is measured
 * - `syncTag`: the sync event that the browser would fire again later
 * - `isBatching`: a request may carry several orders; `isControl`: it must do things twice, or nothing was measured
 */
export const LIBRARIES = [
  { id: "fetch", name: "`fetch` in a loop, 3 retries", adapter: "fetch.js", packages: [], backend: "plain", isControl: true },
  { id: "axios", name: "axios {axios}, axios-retry {axios-retry}", adapter: "axios.js", packages: ["axios", "axios-retry"], backend: "plain" },
  { id: "axios-post", name: "the same, told to retry a POST after a 5xx", adapter: "axios-post.js", packages: ["axios", "axios-retry"], backend: "plain" },
  {
    id: "workbox",
    name: "Workbox {workbox-background-sync}, background sync",
    adapter: "workbox.js",
    worker: "workbox-worker.js",
    packages: ["workbox-background-sync"],
    backend: "plain",
    syncTag: "workbox-background-sync:orders",
  },
  {
    id: "tanstack",
    name: "TanStack Query {@tanstack/query-core}, persisted mutations",
    adapter: "tanstack.js",
    packages: ["@tanstack/query-core", "@tanstack/query-persist-client-core"],
    backend: "plain",
  },
  { id: "replicache", name: "Replicache {replicache}", adapter: "replicache.js", packages: ["replicache"], backend: "replicache", isBatching: true },
  { id: "convex", name: "Convex {convex}", adapter: "convex.js", packages: ["convex"] },
  { id: "semel", name: "Semel {semel}", adapter: "semel.js", packages: [], backend: "semel" },
];
