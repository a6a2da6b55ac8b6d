// A page for a test, as the package sees it.

/** Makes a page: puts what a page has into `globalThis`. */
export function page({ onLine = true } = {}) {
  const [window, document, navigator] = [new EventTarget(), { hidden: false }, { onLine }];
  const has = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  has("navigator", navigator);
  has("document", document);
  has("addEventListener", window.addEventListener.bind(window));
  return {
    hide: () => (document.hidden = true),
    window: (type) => window.dispatchEvent(new Event(type)),
    offline() {
      navigator.onLine = false;
      window.dispatchEvent(new Event("offline"));
    },
    online() {
      navigator.onLine = true;
      window.dispatchEvent(new Event("online"));
    },
  };
}

/** Removes it again. */
export function leavePage() {
  for (const name of ["navigator", "document", "addEventListener"]) delete globalThis[name];
}
