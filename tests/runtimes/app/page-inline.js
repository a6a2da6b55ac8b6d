// A page that imports the package with the module in it, and does nothing with it until it is told to.

import * as semel from "semel/inline";
import { roundTrip } from "./round-trip.js";

globalThis.semel = semel;
globalThis.roundTrip = (settings) => roundTrip(semel, settings);
