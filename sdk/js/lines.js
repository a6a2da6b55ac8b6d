// Headers as text, one `name:value` a line, so that they cross the boundary to the module in one piece.

export function* linesOf(lines) {
  for (const line of lines.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) yield [line.slice(0, colon), line.slice(colon + 1)];
  }
}

export function toLines(pairs) {
  let lines = "";
  for (const [name, value] of pairs) lines += `${name}:${value}\n`;
  return lines;
}
