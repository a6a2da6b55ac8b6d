// Shows the form in the page.

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Deposit } from "./Deposit.jsx";

createRoot(document.getElementById("root")).render(
  <StrictMode>
    <Deposit />
  </StrictMode>,
);
