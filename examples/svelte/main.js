// Opens the outbox, then shows the form.

import { Semel } from "semel";
import { mount } from "svelte";
import Deposit from "./Deposit.svelte";

const target = document.getElementById("app");

Semel.open({ url: "http://127.0.0.1:8787" }).then(
  (semel) => mount(Deposit, { target, props: { semel } }),
  ({ message }) => (target.textContent = `No deposit can be made. (${message})`),
);
