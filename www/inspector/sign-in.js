// Asks for the administration token.
//
// Invariant: the token is kept for this tab only, in its session storage, and is sent nowhere but in the header of requests.

import { Admin, AdminError } from "../../sdk/admin/api.js";
import { make, say } from "../view/element.js";
import { troubleOf } from "./trouble.js";

const NAME = "semel administration token";

export const tokenOf = () => sessionStorage.getItem(NAME);
export const signOut = () => sessionStorage.removeItem(NAME);

/** Shows the form. `error`: why the previous token was refused. `done()` is called with a token that the server accepts. */
export function showSignIn({ error, done }) {
  const input = make("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: "", "aria-describedby": "token-hint" });
  const button = make("button", { type: "submit", class: "primary" }, "Sign in");
  const news = make("p", { class: "news", role: "status" });
  const trouble = make("div", {}, ...(error ? [troubleOf(error)] : []));
  const form = make("form", { class: "sign-in" }, make("h1", { id: "title", tabindex: "-1" }, "Sign in"), trouble, make("label", { class: "field", for: "token" }, "Administration token"), input, make("p", { id: "token-hint", class: "hint" }, "The secret SEMEL_ADMIN_TOKEN of this deployment. It is kept in this tab until the tab is closed."), button, news);
  let isBusy = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    trouble.replaceChildren();
    say(news, "Asking the server…");
    try {
      const token = input.value.trim();
      // A header can't carry such a token, and the failure would look like a server that is not there.
      if (!/^[\x21-\x7e]+$/.test(token)) throw new AdminError("key-invalid", "The administration token has characters that a token can't have.", { executed: "no", isDefinitive: true });
      await new Admin({ url: location.origin, token }).keys({ limit: 1 });
      sessionStorage.setItem(NAME, token);
      done(token);
    } catch (error) {
      trouble.replaceChildren(troubleOf(error));
      input.focus();
      input.select();
    } finally {
      isBusy = false;
      say(news, "");
    }
  });
  return { title: "Sign in", element: form };
}
