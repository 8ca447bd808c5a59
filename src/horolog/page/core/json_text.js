// JSON with indents, with the original characters: numbers keep all their digits and fields their order, which is not
// certain if the text is parsed and written again.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const INDENT = "  ";

/** The text with indents; null if it is no JSON. */
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
