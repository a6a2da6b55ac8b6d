// What a page hears from its browser: the network goes and comes back, the page is looked at again, or is about to go.

/** Calls back until `signal` aborts. Where there is no page and no worker of one, nothing is heard. */
export function listen({ signal, offline, online, hurry, flush }) {
  const { document, navigator } = globalThis;
  // Others have no idea whether they are online.
  if (typeof navigator?.onLine !== "boolean") return;
  const on = (target, acts) => Object.entries(acts).forEach(([type, act]) => target?.addEventListener(type, act, { signal }));
  on(globalThis, { offline, online, pageshow: hurry, pagehide: flush });
  on(document, { visibilitychange: hurry, resume: hurry });
  if (!navigator.onLine) offline();
}
