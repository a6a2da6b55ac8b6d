// Renders the repository's documents as pages: Markdown to HTML, with links that lead from page to page.
//
// Invariants:
// - A link to a document becomes a link to its page. A link to another file of the repository becomes plain text, because the site does not have the
//   file. A link that leads nowhere fails the build, and so does an image that is not served.
// - A heading has the same anchor as where the Markdown is usually read.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path";
import { ROOT } from "./paths.mjs";
import { StepError } from "./step.mjs";

/** All documents, in the order of the navigation. */
export const DOCUMENTS = [
  { name: "index", file: "README.md", title: "Start" },
  { name: "examples", file: "examples/README.md", title: "Examples" },
  { name: "sdk", file: "sdk/npm/README.md", title: "SDK" },
  { name: "handlers", file: "docs/handlers.md", title: "Handlers" },
  { name: "protocol", file: "PROTOCOL.md", title: "Protocol" },
  { name: "guarantees", file: "docs/guarantees.md", title: "Guarantees" },
  { name: "operations", file: "docs/operations.md", title: "Operations" },
  { name: "performance", file: "docs/performance.md", title: "Performance" },
  { name: "limits", file: "docs/limits.md", title: "Known limits" },
  { name: "security", file: "SECURITY.md", title: "Security" },
  { name: "architecture", file: "ARCHITECTURE.md", title: "Architecture" },
  { name: "design-client", file: "docs/design-client.md", title: "Design: client" },
  { name: "design-server", file: "docs/design-server.md", title: "Design: server" },
  { name: "design-tools", file: "docs/design-tools.md", title: "Design: tools" },
  { name: "contributing", file: "CONTRIBUTING.md", title: "Contributing" },
  { name: "first-run", file: "docs/first-run.md", title: "First run" },
  { name: "fuzzing", file: "docs/fuzzing.md", title: "Fuzzing" },
  { name: "changelog", file: "CHANGELOG.md", title: "Changes" },
];

/** The folder whose images are served. */
export const IMAGES = "docs/images";

const pathOf = (name) => (name === "index" ? "/docs" : `/docs/${name}`);

/** Resolves to `{ name, title, navigation, content }` for each document. `read` resolves to its Markdown; tests have their own. */
export async function renderDocuments(read = (file) => readFile(join(ROOT, file), "utf8")) {
  const { Marked, Renderer } = await import("marked");
  const { gfmHeadingId } = await import("marked-gfm-heading-id");
  const pages = [];
  for (const { name, file, title } of DOCUMENTS) {
    const dead = [];
    const named = new Map();
    let heading;
    const marked = new Marked(gfmHeadingId(), {
      // Walked in the order of the text, because a table is named after the heading above it.
      walkTokens(token) {
        if (token.type === "heading") heading = token.text.replaceAll("`", "");
        if (token.type === "table") named.set(token, nameOf(heading, named));
      },
      renderer: {
        link({ href, tokens }) {
          const text = this.parser.parseInline(tokens);
          const to = addressOf(file, href, dead);
          return to === undefined ? text : `<a href="${escape(to)}">${text}</a>`;
        },
        image({ href, text }) {
          // The pages' Content-Security-Policy allows no images from elsewhere.
          if (/^https?:/.test(href)) return escape(text);
          const path = normalize(join(dirname(file), href));
          if (!path.startsWith(`${IMAGES}/`) || !existsSync(join(ROOT, path))) dead.push(href);
          return `<img src="/${escape(path)}" alt="${escape(text)}">`;
        },
        table(token) {
          const table = tableOf.call(this, token);
          // A wide table scrolls on its own, and the keyboard can reach it.
          return `<div class="wide" tabindex="0" role="region" aria-label="${escape(named.get(token))}">${table}</div>`;
        },
        // On a phone, a setting's name is wider than its column. It may break between its words.
        codespan(token) {
          return Renderer.prototype.codespan.call(this, token).replaceAll("_", "_<wbr>");
        },
        code({ text, lang }) {
          return `<pre tabindex="0" data-language="${escape(lang ?? "")}"><code>${escape(text)}</code></pre>`;
        },
      },
    });
    const content = await marked.parse(await read(file));
    if (dead.length > 0) throw new StepError(`${file} has links that lead nowhere: ${dead.join(", ")}.`);
    pages.push({ name, title, navigation: navigationOf(name), content });
  }
  return pages;
}

/** A name that no other table of the page has, because a screen reader tells tables apart by name. */
function nameOf(heading, named) {
  const name = heading === undefined ? "Table" : `Table: ${heading}`;
  const names = new Set(named.values());
  for (let many = 1; ; many += 1) {
    const next = many === 1 ? name : `${name}, ${many}`;
    if (!names.has(next)) return next;
  }
}

function tableOf({ header, rows }) {
  const cells = (row, tag) => row.map(({ tokens }) => `<${tag}>${this.parser.parseInline(tokens)}</${tag}>`).join("");
  return `<table><thead><tr>${cells(header, "th")}</tr></thead><tbody>${rows.map((row) => `<tr>${cells(row, "td")}</tr>`).join("")}</tbody></table>`;
}

function navigationOf(current) {
  const item = ({ name, title }) => `<li><a href="${pathOf(name)}"${name === current ? ' aria-current="page"' : ""}>${title}</a></li>`;
  return DOCUMENTS.map(item).join("");
}

/** Where a link of `file` leads on the site; undefined if there is no page for it. A link that leads nowhere is added to `dead`. */
function addressOf(file, href, dead) {
  if (/^(https?:|#)/.test(href)) return href;
  const [path, anchor] = href.split("#");
  const target = normalize(join(dirname(file), path)).replace(/\/$/, "");
  const found = DOCUMENTS.find((document) => document.file === target);
  if (found) return pathOf(found.name) + (anchor === undefined ? "" : `#${anchor}`);
  if (!existsSync(join(ROOT, target))) dead.push(href);
  return undefined;
}

const escape = (text) => text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
