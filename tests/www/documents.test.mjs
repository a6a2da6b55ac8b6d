// Tests the documents as pages: their links lead to the right place, and their text stays text.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DOCUMENTS, renderDocuments } from "../../scripts/setup/documents.mjs";

/** Renders the documents with these texts, by name. Documents without a text are empty. */
async function render(texts) {
  const pages = await renderDocuments(async (file) => texts[file] ?? "");
  return Object.fromEntries(pages.map(({ name, ...page }) => [name, page]));
}

/** One document as HTML, without the paragraph around it. */
async function html(markdown, file = "README.md") {
  const { name } = DOCUMENTS.find((document) => document.file === file);
  return (await render({ [file]: markdown }))[name].content.replace(/^<p>|<\/p>\n$/g, "");
}

test("the repository's documents are pages, each in the navigation of all, which marks the current page", async () => {
  const pages = await renderDocuments();
  assert.deepEqual(pages.map(({ name }) => name), ["index", "examples", "sdk", "handlers", "protocol", "guarantees", "operations", "performance", "limits", "security", "architecture", "design-client", "design-server", "design-tools", "contributing", "first-run", "fuzzing", "changelog"]);
  const links = pages.map(({ name }) => (name === "index" ? "/docs" : `/docs/${name}`));
  for (const [at, { title, navigation, content }] of pages.entries()) {
    assert.equal(title, DOCUMENTS[at].title);
    assert.match(content, /<h1 id="[^"]+">/);
    assert.deepEqual([...navigation.matchAll(/<li><a href="([^"]+)"( aria-current="page")?>([^<]+)<\/a><\/li>/g)].map(([, href, isHere]) => [href, isHere !== undefined]), links.map((href, other) => [href, other === at]));
    assert.ok(navigation.includes(`>${title}</a>`));
  }
});

describe("a link", () => {
  for (const [file, href, to] of [
    ["README.md", "PROTOCOL.md", "/docs/protocol"],
    ["README.md", "./PROTOCOL.md#headers", "/docs/protocol#headers"],
    ["README.md", "README.md", "/docs"],
    ["README.md", "examples/README.md#node", "/docs/examples#node"],
    ["sdk/npm/README.md", "../../ARCHITECTURE.md", "/docs/architecture"],
    ["examples/README.md", "README.md", "/docs/examples"],
    ["examples/README.md", "../README.md", "/docs"],
    ["README.md", "#here", "#here"],
    ["README.md", "https://example.com/a?b=1&c=%20#d", "https://example.com/a?b=1&#38;c=%20#d"],
    ["README.md", "http://127.0.0.1:8787", "http://127.0.0.1:8787"],
  ]) {
    test(`of ${file} to ${href} leads to ${to}`, async () => {
      assert.equal(await html(`see [it **there**](${href}).`, file), `see <a href="${to}">it <strong>there</strong></a>.`);
    });
  }

  for (const [file, href] of [["README.md", "LICENSE"], ["README.md", "examples/"], ["README.md", "tests/e2e"], ["README.md", "scripts/test.mjs#L1"], ["examples/README.md", "../core"]]) {
    test(`of ${file} to ${href}, which is not a document, becomes its text`, async () => {
      assert.equal(await html(`see [it **there**](${href}).`, file), "see it <strong>there</strong>.");
    });
  }

  test("that leads nowhere fails the build, which names its file and all such links", async () => {
    await assert.rejects(html("[a](NOTHING.md) [b](PROTOCOL.md) [c](protocol.md#x)"), { message: "README.md has links that lead nowhere: NOTHING.md, protocol.md#x." });
    await assert.rejects(html("[a](PROTOCOL.md)", "examples/README.md"), /examples\/README.md has links that lead nowhere: PROTOCOL.md/);
    await assert.rejects(html("[a](nothing/)"), /nothing\//);
  });
});

describe("an image", () => {
  test("is served from /docs/images, with its alternative text", async () => {
    const image = '<img src="/docs/images/lab-light.png" alt="a &#60;b&#62; &#38; &#34;c&#34;">';
    assert.equal(await html('![a <b> & "c"](docs/images/lab-light.png)'), image);
    assert.equal(await html('![a <b> & "c"](../docs/images/lab-light.png)', "examples/README.md"), image);
  });

  test("that is not among the served ones fails the build", async () => {
    for (const href of ["docs/images/nothing.png", "www/icon.svg", "../elsewhere.png"]) await assert.rejects(html(`![a](${href})`), new RegExp(`README.md has links that lead nowhere: ${href}`));
  });

  test("from another site becomes its alternative text", async () => {
    assert.equal(await html("![it <passes>](https://example.com/badge.svg)"), "it &#60;passes&#62;");
  });
});

test("a heading has an anchor made of its text, unique within its document", async () => {
  const markdown = "# What you `need`\n\n## Again\n\n## Again\n";
  const { index, sdk } = await render({ "README.md": markdown, "sdk/npm/README.md": markdown });
  for (const { content } of [index, sdk]) assert.deepEqual([...content.matchAll(/id="([^"]+)"/g)].map(([, id]) => id), ["what-you-need", "again", "again-1"]);
});

test("code stays text, and a block names its language", async () => {
  const block = (language) => `\`\`\`${language}\n<b a="1">&amp;</b>\n\`\`\``;
  const text = "<code>&#60;b a=&#34;1&#34;&#62;&#38;amp;&#60;/b&#62;</code></pre>";
  assert.equal(await html(block("html")), `<pre tabindex="0" data-language="html">${text}`);
  assert.equal(await html(block("")), `<pre tabindex="0" data-language="">${text}`);
  assert.equal(await html(block('js "x"')), `<pre tabindex="0" data-language="js &#34;x&#34;">${text}`);
  assert.equal(await html("a `<b>` c"), "a <code>&lt;b&gt;</code> c");
});

test("a long name in code may break after each _, and the anchor of a heading has no trace of that", async () => {
  const name = await html("`SEMEL_JWT_KEYS<T>`");
  assert.equal(name, "<code>SEMEL_<wbr>JWT_<wbr>KEYS&lt;T&gt;</code>");
  assert.match(await html("# What `SEMEL_OPEN` does"), /^<h1 id="what-semel_open-does">What <code>SEMEL_<wbr>OPEN<\/code> does<\/h1>/);
});

test("a table is a region that scrolls by itself and takes the focus of the keyboard, and keeps its links", async () => {
  const table = await html("| a | `b` |\n|---|---|\n| [1](PROTOCOL.md) | 2 |\n| 3 | 4 |");
  assert.equal(table, '<div class="wide" tabindex="0" role="region" aria-label="Table"><table><thead><tr><th>a</th><th><code>b</code></th></tr></thead><tbody><tr><td><a href="/docs/protocol">1</a></td><td>2</td></tr><tr><td>3</td><td>4</td></tr></tbody></table></div>');
});

test("each table is named by the heading above it, and no two names are equal", async () => {
  const table = "| a |\n|---|\n| 1 |\n";
  const page = await html(["# One", table, table, "## `Two` & three", table, "# One", table].join("\n\n"));
  const names = [...page.matchAll(/role="region" aria-label="([^"]*)"/g)].map(([, name]) => name);
  assert.deepEqual(names, ["Table: One", "Table: One, 2", "Table: Two &#38; three", "Table: One, 3"]);
});
