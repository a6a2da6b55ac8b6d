// Convex: a mutation by its browser client. Only its size is measured.

import { ConvexClient } from "convex/browser";
import { anyApi } from "convex/server";

export function open(told) {
  const client = new ConvexClient(location.origin);
  return (n) => client.mutation(anyApi.orders.make, { n }).then(
    () => told(n, "made"),
    () => told(n, "failed"),
  );
}
