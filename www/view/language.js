// The language of the browser, for the library of the plot: it asks for numbers in it as it is loaded, and where that is the name of none, as the "C" of WebKit without
// a locale, nothing of the page would run.
//
// Invariant: it is imported before the library.

try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en" });
}
