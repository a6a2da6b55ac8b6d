// Replicache: a mutator changes the local view at once, and a pull tells what the server made of the mutation.

import { Replicache } from "replicache";

export function open(told) {
  const replicache = new Replicache({
    name: "shop",
    pushURL: "/push",
    pullURL: "/pull",
    pullInterval: 1_000,
    mutators: { order: (tx, n) => tx.set(`order/${n}`, "pending") },
  });
  const known = new Set();
  replicache.subscribe((tx) => tx.scan({ prefix: "order/" }).entries().toArray(), (entries) => {
    for (const [key, state] of entries) {
      if (state !== "made" || known.has(key)) continue;
      known.add(key);
      told(Number(key.slice("order/".length)), "made");
    }
  });
  return (n) => replicache.mutate.order(n);
}
