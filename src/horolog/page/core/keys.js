// Keys: single ones ("?"), and "g" with a letter to go to a view. They do nothing while a field has the focus.

import { dialog } from "../parts/dialog.js";
import { h } from "./dom.js";

const PAUSE_MS = 1_200;
const known = [];
let first = "";
let firstAt = 0;

/** Bind `keys` ("z", "g t") to an action, until `signal` ends if one is given. `text` describes it in the help. */
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

/** Focus the first row, or the map, if nothing of the view has the focus, as after a search. */
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
    if (event.key === "Escape") event.target.blur(); // so that keys belong to the page again
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

/** Show all present shortcuts in a dialog. */
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

/** Start listening; called once. */
export function startKeys() {
  document.addEventListener("keydown", pressed);
}
