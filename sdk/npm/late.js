// A Response whose body and headers are made only when somebody asks for them. In Node, a body is a stream from the start, and making it takes longer
// than the rest of a session's call. Many callers read only the status.
//
// Invariant: read through the properties and methods of a Response, it gives what any other Response gives.

export class LateResponse extends Response {
  #given;
  #init;
  #whole;

  constructor(body, init) {
    super();
    this.#given = body;
    this.#init = init;
  }

  get #own() {
    return (this.#whole ??= new Response(this.#given, this.#init));
  }

  get status() {
    return this.#init.status;
  }

  get ok() {
    return this.status >= 200 && this.status < 300;
  }

  get statusText() {
    return this.#own.statusText;
  }

  get headers() {
    return this.#own.headers;
  }

  get body() {
    return this.#own.body;
  }

  get bodyUsed() {
    return this.#whole?.bodyUsed ?? false;
  }

  // The methods that read the body, as far as the runtime has them.
  static {
    for (const name of ["arrayBuffer", "blob", "bytes", "clone", "formData", "json", "text"].filter((name) => name in Response.prototype)) {
      this.prototype[name] = function () {
        return this.#own[name]();
      };
    }
  }
}

/** The class of a session's answers. Outside Node, a body costs little, so a plain Response will do. */
export const Made = "Bun" in globalThis || "Deno" in globalThis ? Response : LateResponse;
