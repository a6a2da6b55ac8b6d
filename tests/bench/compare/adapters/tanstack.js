// TanStack Query with persisted mutations, as its guide shows: paused mutations are stored, and resumed when they are restored.

import { createAsyncStoragePersister } from "@tanstack/query-async-storage-persister";
import { MutationObserver, QueryClient } from "@tanstack/query-core";
import { persistQueryClient } from "@tanstack/query-persist-client-core";
import { del, get, set } from "idb-keyval";

export async function open(told) {
  const queryClient = new QueryClient();
  queryClient.mount();
  queryClient.setMutationDefaults(["order"], {
    mutationFn: make,
    retry: 3,
    onSuccess: (_, n) => told(n, "made"),
    onError: (_, n) => told(n, "failed"),
  });
  const persister = createAsyncStoragePersister({ storage: { getItem: get, setItem: set, removeItem: del } });
  const [, restored] = persistQueryClient({ queryClient, persister });
  await restored;
  queryClient.resumePausedMutations();
  const observer = new MutationObserver(queryClient, { mutationKey: ["order"] });
  return (n) => observer.mutate(n).catch(() => {});
}

async function make(n) {
  const response = await fetch(`/orders/${n}`, { method: "POST" });
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}
