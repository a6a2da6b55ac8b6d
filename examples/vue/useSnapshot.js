// The outbox's snapshot (how many changes wait) as a ref. It is updated until the component that called this is gone.

import { onScopeDispose, shallowRef } from "vue";

export function useSnapshot(semel) {
  const snapshot = shallowRef(semel.getSnapshot());
  onScopeDispose(semel.subscribe((now) => (snapshot.value = now)));
  return snapshot;
}
