export { type ConsumerOptions, type DeadLetter, consumer } from "./worker.js";
