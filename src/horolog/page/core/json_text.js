// JSON with indents, letter by letter as it came: numbers keep all their digits and fields their order, which parsing
// and writing anew would not promise.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const INDENT = "  ";

/** The text with indents; null for what is no JSON. */
export function prettyJson(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const out = [];
  let depth = 0;
  let before = "";
  for (const [token] of text.matchAll(TOKEN)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") out.push(`\n${INDENT.repeat(depth)}`);
    } else if (before === "{" || before === "[" || before === ",") {
      out.push(`\n${INDENT.repeat(depth)}`);
    }
    out.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return out.join("");
}
