// Opens the outbox, then shows the form.

import { Semel } from "semel";
import { createApp } from "vue";
import Deposit from "./Deposit.vue";

const target = document.getElementById("app");

Semel.open({ url: "http://127.0.0.1:8787" }).then(
  (semel) => createApp(Deposit, { semel }).mount(target),
  ({ message }) => (target.textContent = `No deposit can be made. (${message})`),
);
