// What every command needs: the deployment, the terminal, and changes that say under which id they were sent.

import { Admin, AdminError, earlierChange, newChange } from "../admin/api.js";
import { explain, sentence } from "../admin/advice.js";
import { Failure } from "./failure.js";
import { quoted } from "./terminal.js";

/** The session of a command with its `options`. Throws a usage `Failure` if the deployment or the token is missing or unusable. */
export function sessionOf(options, { env, terminal, signal }) {
  const url = options.url ?? env.SEMEL_URL;
  const token = options.token ?? env.SEMEL_ADMIN_TOKEN;
  if (!url) throw new Failure("usage", ["Which deployment? Give --url or SEMEL_URL."]);
  const given = options.url === undefined ? "SEMEL_URL" : "--url";
  // The value is not printed, because there may be a password in it.
  if (!/^https?:\/\/[^/?#@]+\/?$/.test(url) || !URL.canParse(url)) throw new Failure("usage", [`${given} names no deployment: it must be an origin, such as https://api.example.com.`]);
  // Over plain HTTP, anybody on the way to another machine could read the token. The hosts are those of `SEMEL_JWKS_URL`; other names below
  // `localhost` are refused, because a resolver is asked for them.
  const { protocol, hostname } = new URL(url);
  if (protocol === "http:" && !/^(localhost|127\.0\.0\.1|\[::1\])$/.test(hostname)) throw new Failure("usage", [`${given} begins with http://, and the administration token would go to another machine in clear text. Give it with https://; http:// is for localhost, 127.0.0.1 and [::1].`]);
  if (!token) throw new Failure("usage", ["There is no administration token. Give SEMEL_ADMIN_TOKEN."]);
  if (!/^[\x21-\x7e]+$/.test(token)) throw new Failure("usage", ["The administration token has characters that a token can't have."]);
  let hasTold = false;
  const onretry = ({ message }) => {
    // With `--json`, stderr has the error of the command and nothing else.
    if (!hasTold && !terminal.isJson) terminal.note(`${sentence(message)} Trying again, for up to ${options.timeout} s…`);
    hasTold = true;
  };
  const forMs = options.timeout * 1000;
  // With `url`, so that a printed command means this deployment, whatever the environment says where it is pasted.
  return { options: { ...options, url }, terminal, signal, admin: new Admin({ url, token, readsForMs: forMs, changesForMs: forMs, onretry }) };
}

/** Reads. Any error becomes a `Failure`. `words`: by code, what is printed instead of the usual words about keys and ids. */
export async function reading(session, read, words) {
  try {
    return await read();
  } catch (error) {
    throw failureOf(error, session, { words });
  }
}

/** What to say, and `executed`, if a command ends before it has sent its change. With `--again`, an earlier run may have made the change. */
export const unsent = ({ options }) => (options.again === undefined ? ["Nothing was changed.", "no"] : ["This run changed nothing. It can't be known whether the earlier one did.", "unknown"]);

/** Does what a change needs first. Its failure also says that nothing was changed. */
export async function ahead(session, work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Failure) || error.kind === "usage") throw error;
    const [line, executed] = unsent(session);
    error.lines.push(line);
    error.json.executed = executed;
    throw error;
  }
}

/** Reads something that a change needs first. */
export const readingAhead = (session, read) => ahead(session, () => reading(session, read));

/** Makes a change: a new one, or with `--again` an earlier one. `again`: the command that would send it once more. `words`: as above. */
export async function changing(session, again, change, words) {
  const made = earlier(session.options.again);
  try {
    return await change(made);
  } catch (error) {
    const failure = failureOf(error, session, { isChange: true, isUnsent: made.firstSent === undefined, words });
    // Running it again is no use if the refusal is final.
    if (failure.json.executed === "unknown" && !error.isDefinitive) {
      failure.lines.push(`Run it again like this: ${commandOf(session, [...again, "--again", markOf(made)])}`);
      failure.json.again = markOf(made);
    }
    failure.json.id = made.id;
    throw failure;
  }
}

/** A command as it is to be typed: its name, the key and id it is about, and options. The token is never printed. */
export function commandOf({ options: { url } }, [name, names, ...options]) {
  // A name that begins with a dash would be an option, unless it comes after `--`.
  const rest = names.some((each) => each.startsWith("-")) ? [...options, "--", ...names] : [...names, ...options];
  return ["semel", "--url", url, name, ...rest].map(quoted).join(" ");
}

/** Names a change on the command line. Without its first-sent, a key that has forgotten the id would make the change again. */
export const markOf = ({ id, firstSent }) => `${id}@${firstSent}`;

/** The change that `--again` names; without `--again`, a new one. */
function earlier(again) {
  if (again === undefined) return newChange();
  const [, id, firstSent] = /^(.+)@(\d{1,12})$/.exec(again) ?? [];
  if (id === undefined) throw new Failure("usage", [`--again ${again} names no earlier change. Give what was printed then: ID@SECONDS.`]);
  return earlierChange(id, Number(firstSent));
}

/** `isUnsent`: no attempt at the change was made. */
function failureOf(error, { signal }, { isChange = false, isUnsent = false, words = {} }) {
  if (signal.aborted) {
    const [executed, line] = isUnsent ? ["no", "Nothing was changed."] : ["unknown", "It can't be known whether the change was made."];
    return new Failure("interrupted", ["Interrupted.", ...(isChange ? [line] : [])], isChange ? { executed } : {});
  }
  if (!(error instanceof AdminError)) throw error;
  const { code, status, executed } = error;
  const { what, advice, outcome } = explain(error, isChange);
  const lines = Object.hasOwn(words, code) ? [words[code], outcome] : [what, outcome, advice];
  const json = { code, status: status ?? null, message: error.message, ...(isChange && { executed }) };
  return new Failure("failed", lines.filter(Boolean), json);
}
