// `npx semel`: administers a deployment from a terminal.
//
// Invariants:
// - Answers go to stdout, everything else to stderr, so that answers can always be piped.
// - Exit codes: 0 done, 1 refused, failed or not known, 2 wrong usage, 130 ended by Ctrl-C or SIGTERM.
// - Every change has an id, which is printed if it can't be known whether the change was made.

import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { CHOICES, STATES } from "../admin/words.js";
import { cancel, effects, forget, keys, records, remove, resolve, show } from "./commands.js";
import { Failure } from "./failure.js";
import { sessionOf } from "./session.js";
import { Terminal } from "./terminal.js";

const EXIT = { failed: 1, usage: 2, interrupted: 130 };

const TEXTS = {
  semel: `
Settings:
  SEMEL_URL          the deployment, as --url
  SEMEL_ADMIN_TOKEN  the administration token, as --token. Prefer this: everybody on the machine can
                     read the arguments of a process, and a shell keeps them in its history

A key or an id that begins with a dash goes behind --, as in: semel cancel KEY -- -V1StGXR8

Exit codes: 0 done, 1 refused, failed or not known, 2 wrong usage, 130 ended by Ctrl-C or SIGTERM.`,
  keys: `
Examples:
  semel keys --order heaviest --limit 10
  semel keys --prefix accounts/ --all --json
  semel keys --state in-doubt
  semel keys --state parked --all
  semel keys --hash 2bd806c97f0e00af

The log names a key by the first digits of the SHA-256 of its name. With --hash, semel goes through all keys and lists those whose hash begins so.

With --json, one key a line: {"key","created","seen","records","tombstones","inDoubt","parked","bytes","oldest"}; times in Unix ms.`,
  show: `
Examples:
  semel show accounts/alice
  semel show accounts/alice 3f0c6a52-0f6e-4f0b-9a55-6f1df2c7a1b4 --json`,
  records: `
Examples:
  semel records orders/42
  semel records orders/42 --state in-doubt --all --json

Records are ordered by id. With --state, the key looks through 10,000 records at a time, until it has found as many as were asked for.`,
  effects: `
Examples:
  semel effects accounts/alice
  semel effects accounts/alice --retry 4b1f09c2d7e85a36a0c4e1937f5d2b68
  semel effects accounts/alice --park 9e02c7a1f48d35b6e1d0a29c84f7b513

What a handler has sent to other keys and to addresses outside. What is refused for good is parked, with the reason; what waits is sent
again and again, the first of each lane once a second. With --json, one page a line, in the API's own shape.`,
  forget: `
Examples:
  semel forget --before 30d
  semel forget --before 2026-10-22T08:00:00Z --no-wait --yes

Every key forgets what was first sent before that instant: records that were executed by then too are deleted, or reduced
to their ids where the client did not say when; what the requests did stays. It can't be undone. It goes on in the deployment, whether or not this command waits for it.`,
  cancel: `
Example:
  semel cancel accounts/alice 3f0c6a52-0f6e-4f0b-9a55-6f1df2c7a1b4

It asks only if nobody has used the key, because its name may be mistyped.`,
  resolve: `
Examples:
  semel resolve orders/42 3f0c6a52-0f6e-4f0b-9a55-6f1df2c7a1b4 --executed yes --status 201 --type application/json --body '{"order":7}'
  semel resolve orders/42 3f0c6a52-0f6e-4f0b-9a55-6f1df2c7a1b4 --executed no

For a request that was sent to the upstream, and of which nobody knows whether it ran. Look there first. What is under way
at this moment can't be resolved.`,
  delete: `
Examples:
  semel delete accounts/alice 3f0c6a52-0f6e-4f0b-9a55-6f1df2c7a1b4
  semel delete accounts/alice
  semel delete accounts/alice --whole --yes

A key is deleted with all its data. A record is reduced to its id, so that no late attempt runs: what ran loses its
outcome, and what crashed and may run again is cancelled. One in doubt is given up: it can't be resolved any more.`,
};

/** Runs the command line. Resolves to the exit code. */
export async function main(argv, { version, env, stdin, stdout, stderr, onInterrupt }) {
  const terminal = new Terminal({ env, stdin, stdout, stderr, isJson: argv.includes("--json") });
  const interruption = new AbortController();
  onInterrupt(() => interruption.abort());
  try {
    const program = programOf({ version, terminal, env, signal: interruption.signal });
    refuseRuns(argv, program);
    await program.parseAsync(argv, { from: "user" });
    return 0;
  } catch (error) {
    // Commander has already printed the error or its help as text. With --json it has printed nothing.
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return 0;
      if (terminal.isJson) terminal.fail(new Failure("usage", [error.code === "commander.help" ? "Which command? Try --help." : error.message.replace(/^error: /, "")]));
      return EXIT.usage;
    }
    if (!(error instanceof Failure)) throw error;
    terminal.fail(error);
    return EXIT[error.kind];
  }
}

/**
 * Refuses words that commander would take for several one-letter options: an id `-V…` would only print the version, as if everything were done, and
 * `delete KEY -yy` would delete the key. Values of options, such as a token, are accepted. But a `-V…` after an option of a command is refused,
 * because the program does not know that option, and looks for the version first.
 */
function refuseRuns(argv, program) {
  const taking = (...commands) => commands.flatMap(({ options }) => options.filter(({ required }) => required).map(({ long }) => long));
  const [ofProgram, ofAny] = [taking(program), taking(program, ...program.commands)];
  const end = argv.indexOf("--");
  const words = argv.slice(0, end < 0 ? argv.length : end);
  const run = words.find((word, at) => (/^-V./.test(word) && !ofProgram.includes(words[at - 1])) || (/^-y./.test(word) && !ofAny.includes(words[at - 1])));
  if (run !== undefined) throw new Failure("usage", [`${run} begins with a dash. A key or an id that does goes behind --, and a value is given as in --body=${run}.`]);
}

function programOf({ version, terminal, env, signal }) {
  const program = new Command("semel")
    .description("Looks at a Semel deployment and administers it.")
    .version(version)
    .option("--url <url>", "the deployment, such as https://api.example.com (SEMEL_URL)")
    .option("--token <token>", "the administration token (better: SEMEL_ADMIN_TOKEN)")
    .addOption(new Option("--timeout <seconds>", "how long to try again while there is no definitive answer").argParser(numberOf(0, 86_400)).default(60))
    .option("--json", "answers as JSON")
    .configureHelp({ showGlobalOptions: true })
    .exitOverride()
    .showHelpAfterError("Try --help.")
    .configureOutput({ writeOut: (text) => terminal.out(text), writeErr: (text) => terminal.isJson || terminal.err(text), getOutHasColors: () => false, getErrHasColors: () => false })
    .addHelpText("after", TEXTS.semel);
  const add = (usage, description, run) => {
    const [name] = usage.split(" ");
    const action = (...given) => run(sessionOf({ ...program.opts(), ...given.at(-2) }, { env, terminal, signal }), ...given.slice(0, -2));
    return program.command(usage).description(description).addHelpText("after", TEXTS[name]).action(action);
  };
  const again = () => new Option("--again <id@seconds>", "go on with an earlier change, if it is not known whether it was made");

  add("keys", "Lists keys.", keys)
    .addOption(new Option("--order <order>", "which come first").choices(["newest", "heaviest", "name"]).default("newest"))
    .option("--prefix <prefix>", "only keys that begin so")
    .addOption(new Option("--state <state>", "only keys with something in that state").choices(Object.keys(CHOICES)))
    .addOption(new Option("--hash <digits>", "only those that the log names by these digits").argParser(hashOf).conflicts(["limit", "all"]))
    .addOption(new Option("--limit <count>", "how many").argParser(numberOf(1, 1_000_000)).default(50))
    .addOption(new Option("--all", "all there are").conflicts("limit"));
  add("records <key>", "Lists what a key keeps of requests.", records)
    .addOption(new Option("--state <state>", "only those in that state").choices(Object.keys(STATES)))
    .addOption(new Option("--limit <count>", "how many").argParser(numberOf(1, 1_000_000)).default(50))
    .addOption(new Option("--all", "all there are").conflicts("limit"));
  add("show <key> [id]", "Shows what a key keeps, or one request of it with its outcome.", show);
  add("effects <key>", "Shows what a key has still to send, and mends it.", effects)
    .addOption(new Option("--retry <id>", "has a parked one sent again").argParser(effectId).conflicts(["drop", "park"]))
    .addOption(new Option("--drop <id>", "throws a parked one away").argParser(effectId).conflicts("park"))
    .addOption(new Option("--park <id>", "gives up one that is the first to wait for its target").argParser(effectId))
    .option("-y, --yes", "don't ask")
    .addOption(again());
  add("forget", "Forgets, at every key, what is older than an instant.", forget)
    .requiredOption("--before <when>", "an age such as 30d or 12h, or an ISO date")
    .option("--no-wait", "only begin it")
    .option("-y, --yes", "don't ask")
    .addOption(again());
  add("cancel <key> <id>", "Cancels a request: from now on it never runs.", cancel).option("-y, --yes", "don't ask").addOption(again());
  add("resolve <key> <id>", "Says what became of a request that is in doubt.", resolve)
    .addOption(new Option("--executed <word>", "whether it ran").choices(["yes", "no"]).makeOptionMandatory())
    .addOption(new Option("--status <status>", "of its outcome, if it ran").argParser(numberOf(200, 499)))
    .option("--type <type>", "the Content-Type of its outcome")
    .option("--body <text>", "the body of its outcome")
    .option("-y, --yes", "don't ask")
    .addOption(again());
  add("delete <key> [id]", "Deletes a key with all its data, or one record.", remove)
    .option("--whole", "delete the whole key: needed with --yes if no id is given")
    .option("-y, --yes", "don't ask")
    .addOption(again());
  return program;
}

/** Checks the id of a request that a key has sent. */
function effectId(text) {
  if (!/^[0-9a-f]{32}$/.test(text)) throw new InvalidArgumentError("It must be 32 hexadecimal digits, as `effects` shows them.");
  return text;
}

/** Checks the digits by which the log names a key, or the first of them. */
function hashOf(text) {
  if (!/^[0-9a-f]{8,64}$/i.test(text)) throw new InvalidArgumentError("It must be 8 to 64 hexadecimal digits, as `key` in a line of the log.");
  return text.toLowerCase();
}

function numberOf(min, max) {
  return (text) => {
    const number = Number(text);
    if (!/^\d+$/.test(text) || number < min || number > max) throw new InvalidArgumentError(`It must be a number from ${min} to ${max}.`);
    return number;
  };
}
