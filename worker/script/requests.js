// What a handler is given: the request, whole, and what it may work on.
//
// Invariant: all of it is there at once, and what costs something is made where it is asked for.

/** A request as far as its key is told by it. */
export class Head {
  #url;
  #segments;
  #query;

  constructor(method, url) {
    this.method = method;
    this.#url = url;
  }

  /** As it was sent, without its query. */
  get path() {
    const end = this.#url.indexOf("?");
    return end < 0 ? this.#url : this.#url.slice(0, end);
  }

  /** Decoded. The module lets no path through in which one would be empty, or hold a slash. */
  get segments() {
    return (this.#segments ??= this.path === "/" ? [] : this.path.slice(1).split("/").map(decodeURIComponent));
  }

  get query() {
    return (this.#query ??= new URLSearchParams(this.#url.slice(this.path.length)));
  }
}

export class Request extends Head {
  #lines;
  #headers;

  constructor(method, url, lines, body) {
    super(method, url);
    this.#lines = lines;
    this.body = body;
  }

  get headers() {
    return (this.#headers ??= headersOf(this.#lines));
  }

  text() {
    return new TextDecoder().decode(this.body);
  }

  json() {
    return JSON.parse(this.text());
  }
}

function headersOf(lines) {
  const headers = new Headers();
  for (const line of lines.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) headers.append(line.slice(0, colon), line.slice(colon + 1));
  }
  return headers;
}

/** What a handler works on, until it has answered. */
export class Context {
  #storage;

  constructor(storage, now, key, principal) {
    this.#storage = storage;
    this.now = now;
    this.key = key;
    this.principal = principal;
  }

  get sql() {
    if (this.#storage === undefined) {
      throw new Error("ctx.sql is of a request that has its answer: what is written now would be another commit, which nothing protects");
    }
    return this.#storage.sql;
  }

  end() {
    this.#storage = undefined;
  }
}
