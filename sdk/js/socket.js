// A socket to a key, for the frames of a session, one after another. It is opened with the first, and again with the next after it was closed.
//
// Invariants:
// - A frame gets its own answers, or none: what was under way on a socket that is closed is lost.
// - Where the server refuses whoever opens it, that is the answer. One that has answered before is only opened anew: its token has ended, say.

/** The server closes with this and the status of a problem. */
const REFUSED = 4_000;

export class Socket {
  /** Whether one was ever there. */
  wasOpen = false;
  #url;
  #current;

  constructor(origin, key) {
    this.#url = `${origin.replace(/^http/, "ws")}/semel/v1/keys/${key.replaceAll("/", "%2F")}/socket`;
  }

  /**
   * Resolves to the answers to `requests`; rejects with what has a `status` and a `code` where they are refused. `first`: what a connection
   * begins with. One that does not answer until `signal` aborts may be dead, and is closed.
   */
  async send(first, requests, signal) {
    const own = (this.#current ??= this.#connect());
    signal.addEventListener("abort", own.close);
    try {
      await own.opened;
      if (own.frame === 0) own.socket.send(JSON.stringify(first));
      this.wasOpen = true;
      own.frame += 1;
      return await new Promise((resolve, reject) => {
        own.waiting = { resolve, reject };
        own.socket.send(JSON.stringify({ frame: own.frame, requests }));
      });
    } finally {
      signal.removeEventListener("abort", own.close);
    }
  }

  close() {
    this.#current?.close();
  }

  #connect() {
    const own = { socket: new WebSocket(this.#url), frame: 0, waiting: undefined };
    let hasAnswered = false;
    own.opened = new Promise((resolve, reject) => {
      own.socket.onopen = resolve;
      own.fail = (error) => {
        if (this.#current === own) this.#current = undefined;
        reject(error);
        own.waiting?.reject(error);
      };
    });
    own.close = () => {
      own.socket.onclose = null;
      own.socket.close();
      own.fail(new Error("the socket was closed"));
    };
    own.socket.onclose = ({ code, reason }) => {
      const refusal = !hasAnswered && code > REFUSED ? { status: code - REFUSED, code: reason } : {};
      own.fail(Object.assign(new Error(`the socket was closed: ${code} ${reason}`), refusal));
    };
    own.socket.onmessage = ({ data }) => {
      const { frame, answers } = JSON.parse(data);
      hasAnswered = true;
      if (frame === own.frame) own.waiting.resolve(answers);
    };
    return own;
  }
}
