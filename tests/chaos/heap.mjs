// Measures what a page keeps once its garbage is collected, over the DevTools protocol.
//
// Invariants:
// - It counts the heap of JavaScript, what arrays hold outside of it, and the memory of wasm. Answers and requests of IndexedDB that a script keeps
//   have
//   their wrappers in the heap. The browser's own share of them is not counted: while it is watched, Chromium notes some 340 bytes of each request,
//   even of
//   a plain `fetch`.
// - A page without wasm is an error, because then the client's own memory was not found.

/** The second collection frees what callbacks of the first have released. */
const COLLECTIONS = 2;
const SUM = "function () { return this.reduce((all, { buffer }) => all + buffer.byteLength, 0); }";

/** Resolves to bytes. `tab`: a page of Playwright. */
export async function keptBytes(tab) {
  const session = await tab.context().newCDPSession(tab);
  try {
    for (let time = 0; time < COLLECTIONS; time += 1) await session.send("HeapProfiler.collectGarbage");
    const { usedSize, backingStorageSize } = await session.send("Runtime.getHeapUsage");
    return usedSize + backingStorageSize + (await wasmBytes(session));
  } finally {
    await session.detach();
  }
}

async function wasmBytes(session) {
  const { result } = await session.send("Runtime.evaluate", { expression: "WebAssembly.Memory.prototype" });
  const { objects } = await session.send("Runtime.queryObjects", { prototypeObjectId: result.objectId });
  const { result: sum } = await session.send("Runtime.callFunctionOn", { objectId: objects.objectId, functionDeclaration: SUM, returnByValue: true });
  if (!(sum.value > 0)) throw new Error("the page has no wasm");
  return sum.value;
}
