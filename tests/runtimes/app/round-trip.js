// One round trip of the SDK, the same in every runtime: whoever calls it has imported the package in its own way.

/** Makes a deposit through a network that loses the first answer, then a read with a signal, and resolves to what the caller got, as JSON takes it. */
export async function roundTrip({ Semel, SemelError, OutcomeUnknownError }, { url, account, ...options }) {
  const semel = await Semel.open({ url, retryIntervalMs: 20, ...options });
  try {
    const response = await deposit(semel, account);
    const read = await semel.fetch(`/accounts/${account}`, { signal: new AbortController().signal });
    const result = { status: response.status, replayed: response.headers.get("idempotent-replayed"), body: await response.json(), read: await read.json() };
    return { ...result, pending: (await semel.pending()).length, isOfClasses: await errorsOf(Semel, [Error, SemelError, OutcomeUnknownError], url) };
  } finally {
    await semel.close();
  }
}

/** Of which of the classes the error is that a caller gets whose outbox is closed while its request is on its way. */
async function errorsOf(Semel, classes, url) {
  let sent;
  const isSent = new Promise((resolve) => (sent = resolve));
  const hang = () => new Promise(() => sent());
  const semel = await Semel.open({ url, durability: "memory", fetch: hang });
  const caller = deposit(semel, "nobody").catch((error) => error);
  await isSent;
  await semel.close();
  const error = await caller;
  return classes.map((type) => error instanceof type);
}

function deposit(semel, account) {
  return semel.fetch(`/accounts/${account}/deposit`, { method: "POST", body: '{"amount":5}' });
}
