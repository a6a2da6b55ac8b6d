// How many changes wait, as a ref: until the component is gone that asks.

import { onScopeDispose, shallowRef } from "vue";

export function useSnapshot(semel) {
  const snapshot = shallowRef(semel.getSnapshot());
  onScopeDispose(semel.subscribe((now) => (snapshot.value = now)));
  return snapshot;
}
