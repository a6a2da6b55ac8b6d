// A body in many chunks, each a view of a larger buffer, as the runtime gives them; and how many of them are kept.

import { setImmediate as turn } from "node:timers/promises";
import v8 from "node:v8";
import vm from "node:vm";

/** `stream`: a body of `count` chunks of `size` bytes. `kept`: once it is read, how many of the buffers of the chunks could not be collected at its end. */
export function inChunks(count, size) {
  v8.setFlagsFromString("--expose-gc");
  const collect = vm.runInNewContext("gc");
  const its = { kept: undefined };
  const buffers = [];
  const pull = async (controller) => {
    if (buffers.length < count) {
      const chunk = new Uint8Array(new ArrayBuffer(size + 4_096), 0, size);
      buffers.push(new WeakRef(chunk.buffer));
      return controller.enqueue(chunk);
    }
    // Until the turn is over, a WeakRef keeps what it is of.
    await turn();
    collect();
    its.kept = buffers.filter((buffer) => buffer.deref() !== undefined).length;
    controller.close();
  };
  return Object.assign(its, { stream: new ReadableStream({ pull }, { highWaterMark: 0 }) });
}
