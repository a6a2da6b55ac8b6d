// The package is required; the rest of the app may be imported.
import("./run.js").then(({ run }) => run(async (entry) => require(entry)));
