// The servers of a comparison. Each counts how often it has executed every order.
//
// Invariant: a server does what the library's documentation asks of it, and no more. The plain server executes every request.

const json = (status, value) => ({ status, headers: { "content-type": "application/json" }, body: JSON.stringify(value) });

/** `POST /orders/{n}` makes order n, every time. */
export function plainBackend() {
  const effects = new Map();
  const orderOf = (path) => Number(/^\/orders\/(\d+)$/.exec(path)?.[1]);
  return {
    ordersOf: (path) => [orderOf(path)].filter((n) => n > 0),
    async answer({ method, url }) {
      const n = orderOf(url);
      if (method !== "POST" || !n) return json(404, {});
      effects.set(n, (effects.get(n) ?? 0) + 1);
      return json(200, { n, state: "made" });
    },
    effects: async () => effects,
  };
}

/** Push and pull as in doc.replicache.dev, with the "reset" strategy: a mutation runs if its id is the client's next one. */
export function replicacheBackend() {
  const effects = new Map();
  const groups = new Map();
  let version = 0;
  const groupOf = (id) => groups.get(id) ?? groups.set(id, new Map()).get(id);
  const push = ({ clientGroupID, mutations }) => {
    const clients = groupOf(clientGroupID);
    for (const { clientID, id, args } of mutations) {
      const last = clients.get(clientID) ?? 0;
      if (id <= last) continue;
      if (id > last + 1) return json(500, {});
      effects.set(args, (effects.get(args) ?? 0) + 1);
      clients.set(clientID, id);
      version += 1;
    }
    return json(200, {});
  };
  const pull = ({ clientGroupID }) => {
    const made = [...effects.keys()].map((n) => ({ op: "put", key: `order/${n}`, value: "made" }));
    return json(200, { cookie: version, lastMutationIDChanges: Object.fromEntries(groupOf(clientGroupID)), patch: [{ op: "clear" }, ...made] });
  };
  return {
    ordersOf: (path, body) => (path === "/push" ? JSON.parse(body).mutations.map(({ args }) => args) : []),
    async answer({ url }, body) {
      if (url === "/push") return push(JSON.parse(body));
      if (url === "/pull") return pull(JSON.parse(body));
      return json(404, {});
    },
    effects: async () => effects,
  };
}

/** A Semel worker with the ledger. Each order is a deposit to its own account, whose entries are counted. */
export function semelBackend(server, orders) {
  return {
    ordersOf: (path) => [Number(/^\/accounts\/order-(\d+)\/deposit$/.exec(path)?.[1])].filter((n) => n > 0),
    async answer({ method, url, headers }, body) {
      const { host, connection, "content-length": length, ...onward } = headers;
      const answer = await fetch(server.url + url, { method, headers: onward, body: method === "POST" ? body : undefined, redirect: "manual" });
      return { status: answer.status, headers: ownHeaders(answer.headers), body: Buffer.from(await answer.arrayBuffer()) };
    },
    async effects() {
      const counted = new Map();
      for (const n of orders) counted.set(n, (await server.account(`order-${n}`)).entries);
      return counted;
    },
  };
}

/** The headers without those that belong to one connection. */
function ownHeaders(headers) {
  const { connection, "keep-alive": alive, "transfer-encoding": encoding, "content-length": length, ...own } = Object.fromEntries(headers);
  return own;
}
