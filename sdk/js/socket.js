// A socket to a key, for the frames of a session. It is opened with the first, and again with the next after it was closed.
//
// Invariants:
// - A frame gets its own answers, or none: what was under way on a socket that is closed is lost.
// - One that does not open in time is closed.
// - Where the server refuses whoever opens it, that is the answer. One that has answered before is only opened anew: its token has ended, say.

/** The server closes with this and the status of a problem. */
const REFUSED = 4_000;

export class Socket {
  #url;
  #openMs;
  #current;

  /** `timeoutMs`: so long may an attempt take; one that takes half of it to open leaves no time for what it is opened for. */
  constructor(origin, key, timeoutMs) {
    this.#openMs = timeoutMs / 2;
    this.#url = `${origin.replace(/^http/, "ws")}/semel/v1/keys/${key.replaceAll("/", "%2F")}/socket`;
  }

  /**
   * Resolves to the answers to `requests`, which are in JSON; rejects with what has a `status` and a `code` where they are refused, and else says whether it
   * `wasOpen`, so that they may have left, and `hasAnswered` any before. `first`: what a connection begins with. `sent()` is called once they have left. One that does not
   * answer until `signal` aborts may be dead, and is closed.
   */
  async send(first, requests, signal, sent) {
    const own = (this.#current ??= this.#connect());
    signal.addEventListener("abort", own.close);
    try {
      if (!own.wasOpen) await own.opened;
      if (own.frame === 0) own.socket.send(JSON.stringify(first));
      const frame = (own.frame += 1);
      own.socket.send(`{"frame":${frame},"requests":${requests}}`);
      sent();
      return await new Promise((resolve, reject) => own.waiting.set(frame, { resolve, reject }));
    } finally {
      signal.removeEventListener("abort", own.close);
    }
  }

  close() {
    this.#current?.close();
  }

  #connect() {
    const own = { socket: new WebSocket(this.#url), frame: 0, waiting: new Map(), wasOpen: false };
    let hasAnswered = false;
    own.opened = new Promise((resolve, reject) => {
      own.socket.onopen = () => {
        clearTimeout(overdue);
        own.wasOpen = true;
        resolve();
      };
      own.fail = (error) => {
        clearTimeout(overdue);
        if (this.#current === own) this.#current = undefined;
        reject(Object.assign(error, { wasOpen: own.wasOpen, hasAnswered }));
        for (const { reject } of own.waiting.values()) reject(error);
      };
    });
    own.close = () => {
      own.socket.close();
      own.fail(new Error("the socket was closed"));
    };
    const overdue = setTimeout(own.close, this.#openMs);
    own.socket.onclose = ({ code, reason }) => {
      const refusal = !hasAnswered && code > REFUSED ? { status: code - REFUSED, code: reason } : {};
      own.fail(Object.assign(new Error(`the socket was closed: ${code} ${reason}`), refusal));
    };
    own.socket.onmessage = ({ data }) => {
      try {
        const { frame, answers } = JSON.parse(data);
        hasAnswered = true;
        own.waiting.get(frame)?.resolve(answers);
        own.waiting.delete(frame);
      } catch {
        // It is not the worker's. Nobody would catch it: in Node it would end the process.
        own.close();
      }
    };
    return own;
  }
}
