// A Response of which body and headers are made once somebody asks for them. In Node a body is a stream from the start, which takes longer than all else
// of a call of a session; and of many answers nobody reads more than the status.
//
// Invariant: who uses it by the properties and methods of a Response finds what is in any other.

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

  // Those that read it, as many as the runtime has.
  static {
    for (const name of ["arrayBuffer", "blob", "bytes", "clone", "formData", "json", "text"].filter((name) => name in Response.prototype)) {
      this.prototype[name] = function () {
        return this.#own[name]();
      };
    }
  }
}

/** What answers are made of here: elsewhere than in Node a body costs little. */
export const Made = "Bun" in globalThis || "Deno" in globalThis ? Response : LateResponse;
