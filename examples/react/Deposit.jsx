// A form that deposits. Each deposit is made exactly once, even if it waits offline, answers are lost, or the page is reloaded.
//
// The outbox and its requests belong to the page; components only show them. So nothing is opened or sent twice when React mounts a component twice,
// and no answer is lost when a component unmounts.

import { useSyncExternalStore } from "react";
import { Semel } from "semel";

let view = { semel: undefined, balance: "", text: "" };
const listeners = new Set();

function show(change) {
  view = { ...view, ...change };
  for (const listener of listeners) listener();
}

function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// The SDK calls this when it can't go on until something is mended: a login has ended, say.
const onpaused = ({ error }) => show({ text: `The deposit waits. (${error.message})` });
Semel.open({ url: "http://127.0.0.1:8787", onpaused })
  .then(begin)
  .catch(({ message }) => show({ text: `No deposit can be made. (${message})` }));

function begin(semel) {
  show({ semel });
  showBalance();
  // Deposits that this page had under way when it was reloaded or closed go on, and their answers come here.
  semel.onrecovered = async ({ response, error }) => {
    show({ text: `An earlier deposit was ${await (response ? outcome(response) : failure(error))}` });
    showBalance();
  };
}

async function deposit(amount) {
  show({ text: "" });
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ amount }) };
  const text = await view.semel.fetch("/accounts/dave/deposit", request).then(outcome, failure);
  show({ text: `The deposit was ${text}` });
  showBalance();
}

async function outcome(response) {
  return response.ok ? "made." : `refused: ${await response.text()}`;
}

function failure({ executed = "no", message }) {
  const texts = {
    no: "not made. You can try again.",
    yes: "made, but its answer is lost.",
    unknown: "made or not, nobody can tell. Look at the balance before you try again.",
  };
  return `${texts[executed]} (${message})`;
}

// A read is sent once, as by `fetch`. Reads run one after another, so that an old balance never replaces a newer one.
let reading = Promise.resolve();

function showBalance() {
  reading = reading
    .then(() => view.semel.fetch("/accounts/dave"))
    .then((response) => response.json())
    .catch(() => ({}))
    .then(({ balance = "unknown" }) => show({ balance }));
}

function Waiting({ semel }) {
  const { pending } = useSyncExternalStore(semel.subscribe, semel.getSnapshot);
  return <p>{`${pending || "No"} ${pending === 1 ? "change" : "changes"} waiting to be sent`}</p>;
}

export function Deposit() {
  const { semel, balance, text } = useSyncExternalStore(subscribe, () => view);

  function submit(event) {
    event.preventDefault();
    deposit(event.target.elements.amount.valueAsNumber);
    // Emptied at once, so that the second click of a double click finds nothing to deposit.
    event.target.reset();
  }

  return (
    <>
      <p>
        Balance: <output>{balance}</output>
      </p>
      <form onSubmit={submit}>
        <input name="amount" type="number" min="1" required aria-label="Amount" />
        <button disabled={!semel}>Deposit</button>
      </form>
      {semel && <Waiting semel={semel} />}
      <p role="status">{text}</p>
    </>
  );
}
