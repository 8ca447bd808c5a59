// The content of an area of a view while it loads, is empty, has old values, or has failed to load.

import { watch } from "../core/api.js";
import { brokerNow } from "../core/clock.js";
import { h, show } from "../core/dom.js";
import { clockText } from "../core/time.js";

/** There is nothing, with the reason, or what to do. */
export function empty(title, hint = "") {
  return h("div", { class: "state empty" }, h("strong", {}, title), hint && h("p", {}, hint));
}

/** Loading; shown only after a moment, so that quick answers do not flicker. */
export function loading(text = "Loading …") {
  return h("div", { class: "state loading", role: "status" }, text);
}

const TITLES = {
  unreachable: "The broker does not answer",
  unauthorized: "You are not logged in: reload the page",
  forbidden: "You have no rights here",
};

const ITSELF = "The page tries again automatically.";

/** Loading has failed. The button calls `again`; `repeats`: the page also tries again itself. */
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

/** A note above old values. */
export function staleNote(atMs, error, repeats) {
  return h("p", { class: "state stale", role: "status" }, `As of ${clockText(atMs)}: ${error.message}.`, repeats ? ` ${ITSELF}` : "");
}

/**
 * An area that shows the result of `load(signal)`, drawn by `draw(value)` (nodes), or one of the states above.
 *
 * root     the node to put it in
 * everyMs  interval of loading while the page is visible; 0: load once
 * isEmpty  (value) → nodes to show in place of the value, or null
 *
 * Returns a function that loads at once.
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

/** Draw again; the link or row with the focus keeps it. */
export function redrawKeepingFocus(root, draw) {
  const active = root.contains(document.activeElement) ? document.activeElement : null;
  const key = active?.closest("[data-key]")?.dataset.key;
  draw();
  if (active && !root.contains(active) && key !== undefined) {
    const again = [...root.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key);
    again?.focus({ preventScroll: true });
  }
}
