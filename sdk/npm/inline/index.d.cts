export * from "../cjs/index.cjs";
