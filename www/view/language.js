// Repairs the browser's language for the plot library, which asks for number formats in it while it is loaded. If the browser's language is not a
// valid tag, such as "C" in WebKit without a locale, the library would throw, and nothing on the page would run.
//
// Invariant: this file is imported before the library.

try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en" });
}
