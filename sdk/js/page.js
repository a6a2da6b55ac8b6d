// What a page hears from its browser: the network goes and comes back, it is looked at again, it is about to go.

/** Calls each act at the event of its name, until `signal` aborts. Where there is no page and no worker of one, nothing is heard. */
export function listen(signal, acts) {
  // Others have no idea whether they are online.
  if (typeof globalThis.navigator?.onLine !== "boolean") return;
  // What happens to the document is heard on the way to it.
  for (const [type, act] of Object.entries(acts)) addEventListener(type, act, { signal, capture: true });
  if (!navigator.onLine) acts.offline();
}
