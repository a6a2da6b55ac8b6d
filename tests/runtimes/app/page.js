// A page that imports the package. It does nothing with it until it is told to.

import * as semel from "semel";
import { roundTrip } from "./round-trip.js";

globalThis.semel = semel;
globalThis.roundTrip = (settings) => roundTrip(semel, settings);
