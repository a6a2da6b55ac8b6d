// What the package's entry points share, in one file: the errors, and, as its default, what makes their `Semel`.

import { loadedOnce } from "./module.js";
import { Outbox } from "./semel.js";

export * from "./errors.js";

/** The class of an entry. `source` gives the module, `sessions` what opens sessions: see `loadedOnce` and `session.js`. */
export default (source, sessions) => {
  const once = loadedOnce(source);
  return class extends Outbox {
    static name = "Semel";

    static open(options) {
      return super.open(options, once, sessions);
    }
  };
};
