// `npm run audit`: checks all code that comes from elsewhere. Fails if anything is wrong, or if a source could not be asked.

import { cargoDeny } from "./audit/cargo-deny.mjs";
import { checksWith } from "./audit/checks.mjs";
import { StepError, main, step } from "./setup/step.mjs";

await main(async () => {
  let program;
  await step("cargo-deny", async () => {
    program = await cargoDeny();
  });
  const wrong = [];
  for (const check of checksWith(program)) {
    await step(check.name, async () => {
      const found = await check.run();
      if (found) wrong.push(`${check.name}\n${found.failed ?? `could not be asked: ${found.unasked}`}`);
      return found && (found.failed ? "WRONG" : "COULD NOT BE ASKED");
    });
  }
  if (wrong.length > 0) throw new StepError(wrong.join("\n\n"), "An advisory that does not concern Semel goes into deny.toml, with the reason; what could not be asked needs a network that reaches it.");
});
