// One round trip of the SDK, the same in every runtime. The caller imports the package in its own way.

/**
 * Makes a deposit through a network that loses the first answer, then a read with a signal, then deposits in a session. Resolves to what the
 * caller got, as values that JSON can hold. `sessionStore` is a store for the session, if there is one.
 */
export async function roundTrip({ Semel, SemelError, OutcomeUnknownError }, { url, account, sessionStore, ...options }) {
  const semel = await Semel.open({ url, retryIntervalMs: 20, ...options });
  try {
    const response = await deposit(semel, account);
    const read = await semel.fetch(`/accounts/${account}`, { signal: new AbortController().signal });
    const result = { status: response.status, replayed: response.headers.get("idempotent-replayed"), body: await response.json(), read: await read.json() };
    result.session = await inSession(semel, `${account}-session`, sessionStore);
    return { ...result, pending: (await semel.pending()).length, isOfClasses: await errorsOf(Semel, [Error, SemelError, OutcomeUnknownError], url) };
  } finally {
    await semel.close();
  }
}

/** The answers to three deposits that are made at the same time: one goes by itself, two in a batch. */
async function inSession(semel, account, store) {
  const session = await semel.session(`accounts/${account}`, "till", { store });
  const answers = await Promise.all([1, 2, 3].map(() => deposit(session, account)));
  await session.close();
  return Promise.all(answers.map((response) => response.json()));
}

/** For each class, whether it is a class of the error that a caller gets if its outbox is closed while its request is on its way. */
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
