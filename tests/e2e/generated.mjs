// Generates bad requests from a seed, as the bytes on the wire. Each of them must be refused.

import { randomOf } from "./lossy.mjs";

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const CHANGES = ["POST", "PUT", "PATCH", "DELETE"];

/**
 * Returns a maker of bad requests. `token`: one that is accepted. `forged`: some that are not. The good parts of a request are those of a deposit to
 * one of the accounts `a0` to `a49`, which would be executed without the bad part.
 */
export function badRequests({ seed, token, forged }) {
  const next = randomOf(seed);
  const below = (end) => Math.floor(next() * end);
  const pick = (from) => from[below(from.length)];
  const byte = () => String.fromCharCode(pick([below(0x20), 0x20 + below(0x60), 0x80 + below(0x80)]));
  const junk = (max, char = byte) => Array.from({ length: 1 + below(max) }, char).join("").replace(/[\r\n]/g, " ");
  const printable = () => String.fromCharCode(0x21 + below(0x5e));
  const account = () => `a${below(50)}`;
  const id = () => `g-${seed}-${below(2 ** 31)}`;
  const deposit = { method: "POST", body: '{"amount":1}' };
  const good = () => ({ ...deposit, path: `/accounts/${account()}/deposit`, lines: [`Authorization: Bearer ${token}`, `Idempotency-Key: ${id()}`] });
  const key = () => `/semel/v1/keys/accounts%2F${account()}`;
  const open = (number) => "[{\"".charAt(below(2)).repeat(number);
  const json = () => pick([() => "", () => open(1 + below(3000)), () => `{"ids":x${junk(50, printable)}`, () => '{"ids":[1e999]}', () => `{"id":${"9".repeat(1 + below(400))}}`, () => '{"id":"a","id":"b"}', () => '{"id":""}', () => "null", () => `{"ids":[],"${junk(9, printable).replace(/["\\]/g, "x")}":1}`, () => '{"ids":[{"id":"a","until":-1}]}'])();
  const changed = (request, line) => ({ ...request, lines: [...request.lines.filter((each) => !each.startsWith(line.slice(0, line.indexOf(":") + 1))), line] });

  const kinds = [
    // Requests without access.
    () => ({ ...good(), method: pick(METHODS), lines: [] }),
    () => changed(good(), `Authorization: ${pick(["Bearer", "Basic", "bearer ", "", "Bearer Bearer", junk(8, printable)])} ${junk(60, printable)}`),
    () => changed(good(), `Authorization: Bearer ${pick(forged)}`),
    () => changed(good(), `Authorization: Bearer ${token.slice(0, below(token.length))}`),
    () => ({ ...good(), lines: [`Authorization: Bearer ${token}`, ...good().lines] }),
    () => ({ ...good(), method: pick(METHODS), path: `/semel/v1/admin/${pick(["keys", "forget", "keys/x", "keys/x/records/y", "", junk(20, printable).replace(/[?#\s]/g, "_")])}` }),
    // Headers of the protocol.
    () => ({ ...good(), lines: [`Authorization: Bearer ${token}`] }),
    () => changed(good(), `Idempotency-Key: ${pick(['"', '""', `"${"x".repeat(256 + below(500))}"`, `a b${junk(5, printable)}`, '"a", "b"', `"${junk(3)}\x80"`, "?1", "(", ":YQ==:;a"])}`),
    () => ({ ...good(), lines: [...good().lines, `Idempotency-Key: ${id()}`] }),
    () => changed(good(), `Semel-Deadline: ${pick(["-1", "1e9", "soon", "9".repeat(1 + below(40) + 15), '"1"', "1.5", ""])}`),
    () => changed(good(), `Semel-First-Sent: ${pick(["1", "@", "@-1", "@1.5", "@999999999999999", `@${"9".repeat(30)}`, "now"])}`),
    () => changed(good(), `Semel-Ack: ${pick(["x y", '"a', '"a";until=-1', '"a";until="1"', "1", '"",', `"${"x".repeat(5000)}"`, Array(65).fill('"a"').join(",")])}`),
    () => changed(good(), `Semel-Key: ${pick(['"accounts/other"', '"%zz"', '"%00"', "accounts/a1", '"', '"accounts%2Fa1%0a"', `"${"k".repeat(600)}"`])}`),
    () => changed(good(), `Semel-Principal: ${pick(['"mallory"', '"semel:admin"', "alice", '""', '"', junk(20, printable)])}`),
    () => changed(good(), `Semel-Session: ${pick(['"s";epoch=1;seq=1', '""', junk(20, printable)])}`),
    // Paths.
    () => ({ ...good(), path: `/accounts/${pick(["%00", "%ff", "%zz", "..%2f", "%5c", "%2e%2e", "a%0a", "", "x".repeat(600), "%c0%ae"])}/deposit` }),
    () => ({ ...good(), path: `/${junk(40, printable).replace(/[?#\s]/g, "_")}` }),
    () => ({ ...good(), method: pick(CHANGES), path: `/semel/${junk(40, printable).replace(/[?#\s]/g, "_")}` }),
    () => ({ ...good(), path: `/accounts/a1/deposit?${"x".repeat(8200 + below(3000))}` }),
    // Control requests.
    () => ({ ...good(), path: `${key()}/${pick(["acks", "cancel", "batch"])}`, body: json() }),
    () => ({ ...good(), path: `${key()}/${pick(["acks", "cancel", "batch"])}`, body: junk(200) }),
    () => ({ ...good(), method: "GET", body: "", path: `${key()}/outcomes/${pick([id(), "%00", "x".repeat(300), "%22%27;--", "caf%C3%A9"])}` }),
    () => ({ ...good(), method: pick(CHANGES), path: `${key()}/${pick(["log", "socket", "sessions/x", "batch", "", "acks/x", "outcomes"])}` }),
    () => ({ ...good(), path: `/semel/v1/keys/${pick(["%00", "%zz", "", "..", "%2e", "x".repeat(600)])}/acks`, body: '{"ids":[]}' }),
    // Heads that are too large, or that are not HTTP.
    () => ({ ...good(), lines: [...good().lines, ...Array.from({ length: 101 + below(50) }, (_, n) => `x-${n}: y`)] }),
    () => changed(good(), `x-large: ${"y".repeat(33_000 + below(3000))}`),
    () => ({ ...good(), method: junk(10, printable).replace(/\s/g, "_") }),
    () => ({ ...good(), lines: [`Authorization: Bearer ${token}`, `${junk(10)}: ${junk(30)}`] }),
    () => ({ raw: junk(300) }),
  ];
  const weights = kinds.flatMap((kind, n) => Array(n >= 24 && n <= 25 ? 1 : 4).fill(kind));
  return () => bytesOf(pick(weights)());
}

function bytesOf({ raw, method, path, lines, body = "" }) {
  if (raw !== undefined) return { bytes: Buffer.from(`${raw}\r\n\r\n`, "latin1"), isHead: false };
  const head = [`${method} ${path} HTTP/1.1`, "Host: localhost", `Content-Length: ${Buffer.byteLength(body, "latin1")}`, ...lines];
  return { bytes: Buffer.from(`${head.join("\r\n")}\r\n\r\n${body}`, "latin1"), isHead: method === "HEAD" };
}
