// A socket to a key, for the frames of a session. It is opened with the first frame, and with the next one after it was closed.
//
// Invariants:
// - A frame gets its own answers or none: frames under way on a socket that closes are lost.
// - A socket that does not open in time is closed.
// - If the server closes a new socket with a refusal, that is the frame's answer. A socket that has answered before is only reopened: its token may just have
//   expired.

/** The server refuses by this close code plus the status of a problem. */
const REFUSED = 4_000;
/** With this code a proxy refuses a message for its length, even on a socket that has answered. */
const TOO_LONG = 1_009;

export class Socket {
  #url;
  #openMs;
  #current;

  /** `timeoutMs`: the time limit of an attempt. Half of it is the limit for opening, so that time is left for the frame. */
  constructor(origin, key, timeoutMs) {
    this.#openMs = timeoutMs / 2;
    this.#url = `${origin.replace(/^http/, "ws")}/semel/v1/keys/${key.replaceAll("/", "%2F")}/socket`;
  }

  /**
   * Sends a frame. `requests`: in JSON; `first`: the first frame of a new connection; `sent()` is called when the frame has left.
   *
   * Resolves to the answers. Rejects with an error that has `status` and `code` if the server refused; otherwise with one that says whether the socket
   * `wasOpen`, in which case the frame may have left, and whether it `hasAnswered` before. If `signal` aborts, the socket may be dead, and is closed.
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
      const refusal = code === TOO_LONG ? { status: 413, code: "too-large" } : !hasAnswered && code > REFUSED ? { status: code - REFUSED, code: reason } : {};
      own.fail(Object.assign(new Error(`the socket was closed: ${code} ${reason}`), refusal));
    };
    own.socket.onmessage = ({ data }) => {
      try {
        const { frame, answers } = JSON.parse(data);
        hasAnswered = true;
        own.waiting.get(frame)?.resolve(answers);
        own.waiting.delete(frame);
      } catch {
        // Not an answer of the Worker. An error thrown here would be caught by nobody, and end a process of Node.
        own.close();
      }
    };
    return own;
  }
}
