// A Response of which the body is made once somebody asks for it. In Node a body is a stream from the start, which takes longer than all else of a call
// of a session; and of many answers nobody reads more than the status.
//
// Invariant: who uses it by the properties and methods of a Response finds what is in any other.

export class LateResponse extends Response {
  #given;
  #whole;

  constructor(body, init) {
    super(null, init);
    this.#given = body;
  }

  get #own() {
    return (this.#whole ??= new Response(this.#given, this));
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
