// Keys: single ones ("?"), and "g" with a letter to go to a view. None while something is being typed.

import { dialog } from "../parts/dialog.js";
import { h } from "./dom.js";

const PAUSE_MS = 1_200;
const known = [];
let first = "";
let firstAt = 0;

/** Let `keys` ("z", "g t") do something; `text` says what in the help. Until `signal` ends, if one is given. */
export function onKeys(keys, text, act, signal) {
  const entry = { keys, text, act };
  known.push(entry);
  signal?.addEventListener("abort", () => known.splice(known.indexOf(entry), 1));
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}

const WALKED = {
  ArrowDown: ".heat, tr[tabindex]",
  ArrowUp: ".heat, tr[tabindex]",
  ArrowLeft: ".heat",
  ArrowRight: ".heat",
  j: "tr[tabindex]",
  k: "tr[tabindex]",
};

/** Where nothing of the view has the focus, as after a search: give it to the first row, or to the map, which go on. */
function walkIn(event) {
  const main = document.getElementById("main");
  if (event.target !== main && main.contains(event.target)) return false;
  const first = WALKED[event.key] && main.querySelector(WALKED[event.key]);
  if (!first) return false;
  event.preventDefault();
  first.focus();
  return true;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur(); // keys go to the page again
    return;
  }
  if (!first && walkIn(event)) return;
  const both = first && event.timeStamp - firstAt < PAUSE_MS ? `${first} ${event.key}` : "";
  const found = known.findLast((each) => each.keys === both) ?? known.findLast((each) => each.keys === event.key);
  first = "";
  if (found) {
    event.preventDefault();
    found.act(event);
  } else if (known.some((each) => each.keys.startsWith(`${event.key} `))) {
    first = event.key;
    firstAt = event.timeStamp;
  }
}

/** Every shortcut of now, in a dialog. */
export function showHelp() {
  const rows = known.map(({ keys, text }) =>
    h("tr", {}, h("td", {}, keys.split(" ").map((key) => [h("kbd", {}, key), " "])), h("td", {}, text)),
  );
  const fixed = [
    ["Tab", "to the next link or field"],
    ["↑ ↓ j k", "to another row of a table"],
    ["Enter", "open what is chosen"],
    ["Esc", "leave a field, close a dialog"],
  ].map(([keys, text]) =>
    h("tr", {}, h("td", {}, keys.split(" ").map((key) => [h("kbd", {}, key), " "])), h("td", {}, text)),
  );
  dialog({ title: "Keyboard", body: h("table", { class: "keys" }, h("tbody", {}, rows, fixed)) });
}

/** Begin to listen; called once. */
export function startKeys() {
  document.addEventListener("keydown", pressed);
}
