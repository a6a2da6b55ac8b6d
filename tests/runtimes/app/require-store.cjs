// Requires the package. The rest of the app may be imported.
import("./run-store.js").then(({ runStore }) => runStore(async (entry) => require(entry)));
