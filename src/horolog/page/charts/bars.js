// Bars: vertical ones for a histogram, horizontal ones for a list.

import { h } from "../core/dom.js";
import { count, short } from "../core/format.js";

/** bars: [{label, n, title}], side by side; small counts stay visible. */
export function histogram({ bars, label }) {
  const most = Math.max(1, ...bars.map(({ n }) => n));
  const columns = bars.map(({ label: name, n, title }) =>
    h(
      "div",
      { class: "bar-column", title: `${title}: ${count(n)}` },
      h("span", { class: "bar-count" }, n ? short(n) : ""),
      h("i", { class: "bar-up", css: { "--part": String(n ? Math.max(n / most, 0.02) : 0) } }),
      h("span", { class: "bar-label" }, name),
    ),
  );
  return h("div", { class: "histogram", role: "img", "aria-label": label }, columns);
}

/** rows: [{name: node, n, note}], one below the other. */
export function ranking(rows) {
  const most = Math.max(1, ...rows.map(({ n }) => n));
  return h(
    "ul",
    { class: "ranking" },
    rows.map(({ name, n, note }) =>
      h("li", {}, h("span", { class: "rank-name" }, name), h("span", { class: "rank-bar" }, h("i", { css: { "--part": String(n / most) } })), h("b", { class: "number" }, count(n)), note ? h("span", { class: "faint" }, note) : null),
    ),
  );
}

/** A gauge of the used share of something. */
export function meter(part, label) {
  const kind = part > 0.95 ? "bad" : part > 0.85 ? "warn" : "";
  return h("div", { class: `meter ${kind}`, role: "meter", "aria-valuenow": Math.round(part * 100), "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": label }, h("i", { css: { "--part": String(Math.min(Math.max(part, 0), 1)) } }));
}
