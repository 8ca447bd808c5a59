// Tables: rows that can be walked with the arrow keys (or j and k) and opened with Enter.

import { h } from "../core/dom.js";

/**
 * columns  [{label, cell(row) → text or node, kind: "number" | "time" | "name" | "long" | "", title(row), narrow: false hides it
 *          on a phone}]
 * rows     objects
 * key      (row) → text that identifies a row
 * href     (row) → the address that a row opens; none: rows cannot be opened
 * caption  for screen readers
 */
export function table({ columns, rows, key, href, caption }) {
  const head = columns.map((column) => h("th", { scope: "col", class: classOf(column) }, column.label));
  const body = rows.map((row) => {
    const cells = columns.map((column) => h("td", { class: classOf(column), title: column.title?.(row) }, column.cell(row)));
    return h("tr", { tabindex: href ? 0 : undefined, data: { key: key(row), ...(href ? { href: href(row) } : {}) } }, cells);
  });
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: `rows ${href ? "open" : ""}`, onkeydown: walk, onclick: open },
      caption && h("caption", { class: "heard" }, caption),
      h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, body),
    ),
  );
}

const classOf = (column) => `${column.kind ?? ""} ${column.narrow === false ? "wide-only" : ""}`.trim() || undefined;

function walk(event) {
  const row = event.target.closest("tr[tabindex]");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (step) {
    event.preventDefault();
    (step > 0 ? row.nextElementSibling : row.previousElementSibling)?.focus();
  } else if (event.key === "Enter" && event.target === row) {
    event.preventDefault();
    location.hash = row.dataset.href;
  }
}

function open(event) {
  const row = event.target.closest("tr[data-href]");
  if (!row || event.target.closest("a, button, input, label, select") || String(getSelection())) return;
  location.hash = row.dataset.href;
}

/** Labels and values, in two columns. */
export function facts(pairs) {
  const rows = pairs.filter(Boolean).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)));
  return h("dl", { class: "facts" }, rows);
}

/** A part of a view with a heading. */
export function panel(title, ...content) {
  return h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), content);
}
