// The body of a message as text, JSON or hex. Large ones are cut, with a note; a download is complete.

import { h, show } from "../core/dom.js";
import { bytes as bytesText } from "../core/format.js";
import { prettyJson } from "../core/json_text.js";
import { copyButton, download } from "./clipboard.js";
import { empty } from "./states.js";

const TEXT_SHOWN = 64 * 1024;
const JSON_MOST = 2 * 1024 * 1024; // larger texts take too long to lay out
const HEX_SHOWN = 8 * 1024;
const ROW = 16;

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

const hex = (number, digits) => number.toString(16).padStart(digits, "0");

function hexText(bytes) {
  const rows = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_SHOWN); at += ROW) {
    const row = [...bytes.subarray(at, at + ROW)];
    const left = row.map((each) => hex(each, 2)).join(" ");
    const right = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    rows.push(`${hex(at, 8)}  ${left.padEnd(ROW * 3 - 1)}  ${right}`);
  }
  return rows.join("\n");
}

/** Ways to show a body: {label, text, cut: whether it is incomplete}; the best one first. */
export function waysToShow(bytes) {
  const text = decoded(bytes);
  const asHex = { label: "Hex", text: () => hexText(bytes), cut: bytes.length > HEX_SHOWN, shown: HEX_SHOWN };
  if (text === null) return [asHex];
  const asText = { label: "Text", text: () => text.slice(0, TEXT_SHOWN), cut: text.length > TEXT_SHOWN, shown: TEXT_SHOWN };
  const pretty = bytes.length <= JSON_MOST && /^\s*[[{]/.test(text) ? prettyJson(text) : null;
  if (pretty === null) return [asText, asHex];
  const asJson = { label: "JSON", text: () => pretty.slice(0, TEXT_SHOWN), cut: pretty.length > TEXT_SHOWN, shown: TEXT_SHOWN };
  return [asJson, asText, asHex];
}

/** Nodes: a switch, copy and download buttons, and the body. `name` is the name of the file. */
export function content(bytes, name) {
  if (!bytes.length) return [empty("The body is empty")];
  const ways = waysToShow(bytes);
  const body = h("pre", { class: "body", tabindex: 0, "aria-label": "The body" });
  const note = h("p", { class: "faint" });
  let chosen = ways[0];
  const buttons = ways.map((way) => h("button", { type: "button", onclick: () => choose(way) }, way.label));
  function choose(way) {
    chosen = way;
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(ways[at] === way)));
    show(body, way.text());
    const first = way.cut ? `The first ${bytesText(way.shown)} are shown; the download has all. ` : "";
    show(note, `${first}${bytesText(bytes.length)} in all.`);
  }
  choose(chosen);
  const tools = h(
    "div",
    { class: "tools" },
    h("span", { class: "switch", role: "group", "aria-label": "Show the body as" }, buttons),
    copyButton("the body as it is shown", () => chosen.text()),
    h("button", { type: "button", class: "small", onclick: () => download(name, bytes) }, "Download"),
  );
  return [tools, note, body];
}
