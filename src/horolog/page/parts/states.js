// What a place of a view shows while it has nothing yet, has nothing at all, has something old, or could not get it.

import { watch } from "../core/api.js";
import { brokerNow } from "../core/clock.js";
import { h, show } from "../core/dom.js";
import { clockText } from "../core/time.js";

/** Nothing is there, and why that may be, or what to do. */
export function empty(title, hint = "") {
  return h("div", { class: "state empty" }, h("strong", {}, title), hint && h("p", {}, hint));
}

/** Something is on its way; shown after a moment only, so that what is quick does not flicker. */
export function loading(text = "Loading …") {
  return h("div", { class: "state loading", role: "status" }, text);
}

const TITLES = {
  unreachable: "The broker does not answer",
  unauthorized: "Nobody is logged in: reload the page",
  forbidden: "You have no rights here",
};

const ITSELF = "It is asked again by itself.";

/** It could not be got. `again` is called by the button; `repeats`: without the button, too. */
export function errorState(error, again, repeats = true) {
  const where = [error.field && `field: ${error.field}`, error.limit && `limit: ${error.limit}`].filter(Boolean);
  return h(
    "div",
    { class: "state error", role: "alert" },
    h("strong", {}, TITLES[error.code] ?? error.message),
    error.code === "unreachable" ? h("p", {}, error.message, repeats ? `. ${ITSELF}` : ".") : null,
    error.code === "unauthorized" || error.code === "forbidden" ? h("p", {}, error.message) : null,
    h("p", { class: "faint" }, h("code", {}, error.code), where.length ? ` · ${where.join(" · ")}` : ""),
    again && h("button", { type: "button", onclick: again }, "Try again"),
  );
}

/** Above what is old. */
export function staleNote(atMs, error, repeats) {
  return h("p", { class: "state stale", role: "status" }, `As of ${clockText(atMs)}: ${error.message}.`, repeats ? ` ${ITSELF}` : "");
}

/**
 * A place that shows what `load(signal)` gives, through `draw(value)` (nodes), and each of the states above.
 *
 * root     where it is put
 * everyMs  ask again as often while the page is looked at; 0: once
 * isEmpty  (value) → nodes to show in place of the value, or null
 *
 * Gives a function that asks at once.
 */
export function place(root, { load, draw, everyMs = 0, signal, isEmpty = () => null }) {
  const note = h("div");
  const body = h("div", { class: "place" }, loading());
  let drawn = false;
  let atMs = 0;
  root.append(note, body);
  const again = watch({
    load,
    everyMs,
    signal,
    got: (value) => {
      atMs = brokerNow();
      drawn = true;
      body.classList.remove("is-old");
      show(note);
      redrawKeepingFocus(body, () => show(body, isEmpty(value) ?? draw(value)));
    },
    failed: (error) => {
      if (drawn) {
        body.classList.add("is-old");
        show(note, staleNote(atMs, error, everyMs > 0));
      } else show(body, errorState(error, () => again(), everyMs > 0));
    },
  });
  return again;
}

/** Whoever was on a link or a row is on the same one afterwards. */
export function redrawKeepingFocus(root, draw) {
  const active = root.contains(document.activeElement) ? document.activeElement : null;
  const key = active?.closest("[data-key]")?.dataset.key;
  draw();
  if (active && !root.contains(active) && key !== undefined) {
    const again = [...root.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key);
    again?.focus({ preventScroll: true });
  }
}
