// A button that deposits 5 at a click: made once, also if answers are lost or the page is reloaded in the middle.
//
// What is under way belongs to the page, and components only show it. So nothing is opened or sent twice when React mounts
// one twice, and no answer is lost when one unmounts.

import { useSyncExternalStore } from "react";
import { Semel } from "semel";

// While a deposit is under way the button is off, for another click would be another deposit.
const underWay = new Set(["opening"]);
let view = { balance: "", text: "", isBusy: true };
const listeners = new Set();

function show(change) {
  view = { ...view, ...change, isBusy: underWay.size > 0 };
  for (const listener of listeners) listener();
}

function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// A pause: something must be mended before it can go on. A login has ended, say.
const onpaused = ({ error }) => show({ text: `The deposit waits. (${error.message})` });
const opening = Semel.open({ url: "http://127.0.0.1:8787", onpaused });
opening.then(begin).catch(({ message }) => show({ text: `No deposit can be made. (${message})` }));

async function begin(semel) {
  // What this page had under way before it was reloaded or closed goes on, and comes to `onrecovered`. What another open tab
  // has under way is that tab's.
  for (const { requestId, state } of await semel.pending()) if (state !== "elsewhere") underWay.add(requestId);
  underWay.delete("opening");
  show({ text: view.text || (underWay.size > 0 ? "An earlier deposit is under way." : "") });
  showBalance();
  semel.onrecovered = async ({ requestId, response, error }) => {
    const text = await (response ? outcome(response) : failure(error));
    underWay.delete(requestId);
    show({ text: `An earlier deposit was ${text}` });
    showBalance();
  };
}

async function deposit() {
  underWay.add("this click");
  show({ text: "The deposit is under way." });
  const semel = await opening;
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ amount: 5 }) };
  const text = await semel.fetch("/accounts/dave/deposit", request).then(outcome, failure);
  underWay.delete("this click");
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

// A read is sent once, as by `fetch`.
async function showBalance() {
  const semel = await opening;
  const account = await semel
    .fetch("/accounts/dave")
    .then((response) => response.json())
    .catch(() => ({}));
  show({ balance: account.balance ?? "unknown" });
}

export function Deposit() {
  const { balance, text, isBusy } = useSyncExternalStore(subscribe, () => view);
  return (
    <>
      <p>
        Balance: <output>{balance}</output>
      </p>
      <button disabled={isBusy} onClick={deposit}>
        Deposit 5
      </button>
      <p role="status">{text}</p>
    </>
  );
}
