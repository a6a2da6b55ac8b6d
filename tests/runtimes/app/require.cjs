// Requires the package. The rest of the app may be imported.
import("./run.js").then(({ run }) => run(async (entry) => require(entry)));
