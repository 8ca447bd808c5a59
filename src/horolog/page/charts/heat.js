// A heat map: rows of cells in a grid, coloured by count. One cell has the cursor; arrow keys move
// it, Enter opens it, and hovering over a cell describes it.

import { h, show } from "../core/dom.js";
import { count, short } from "../core/format.js";

const SHADES = 5;

/** Shade 1 to 5 of a count, where the largest is `most`; 0 for nothing. The scale is that of square roots, so that small
 *  counts differ from nothing, and peaks from large counts. */
export function shadeOf(n, most) {
  if (n <= 0) return 0;
  return Math.min(SHADES, Math.max(1, Math.ceil(Math.sqrt(n / most) * SHADES)));
}

/** The smallest count of each shade that any count up to `most` can have. */
export function thresholds(most) {
  const found = [];
  for (let shade = 1; shade <= SHADES; shade += 1) {
    const n = Math.floor(most * ((shade - 1) / SHADES) ** 2) + 1;
    if (n <= most && n !== found.at(-1)) found.push(n);
  }
  return found;
}

function legend(most) {
  const steps = thresholds(most).map((n) =>
    h("span", { class: "heat-step" }, h("i", { class: `heat-swatch shade-${shadeOf(n, most)}` }), `${short(n)}${n === most ? "" : "+"}`),
  );
  return h("div", { class: "heat-legend", "aria-hidden": "true" }, h("span", { class: "heat-step" }, h("i", { class: "heat-swatch shade-0" }), "0"), steps);
}

/**
 * columns  texts; "" where there is no room for one
 * rows     [{label, title, open, cells: [{column, n, …}], n}]: `open` is called with a click on the label
 * describe (cell) → text: the description of a cell
 * open     (cell) is called by click and Enter
 * start    the cell that has the cursor at first
 * moved    (cell) is called when the cursor has moved there
 * label    description of the map, for screen readers
 */
export function heat({ columns, rows, describe, open, start, moved, label, isNow = () => false, isPast = () => false }) {
  const most = Math.max(0, ...rows.flatMap((row) => row.cells.map((cell) => cell.n)));
  const width = columns.length;
  const cells = new Map(); // node → cell
  const places = rows.map((row) => new Array(width).fill(null)); // row, column → node
  const tip = h("p", { class: "heat-tip", role: "status" });
  const body = rows.map((row, at) => {
    const nodes = row.cells.map((cell) => {
      const state = `${isPast(cell) ? " is-past" : ""}${isNow(cell) ? " is-now" : ""}`;
      const node = h("span", { class: `heat-cell shade-${shadeOf(cell.n, most)}${state}`, role: "gridcell", css: { "grid-column": String(cell.column + 2) } });
      cells.set(node, cell);
      places[at][cell.column] = node;
      return node;
    });
    const name = row.open
      ? h("button", { type: "button", class: "heat-label", title: row.title, tabindex: -1, onclick: row.open }, row.label)
      : h("span", { class: "heat-label", title: row.title }, row.label);
    return h("div", { class: "heat-row", role: "row" }, name, nodes, h("span", { class: "heat-sum", title: count(row.n) }, row.n ? short(row.n) : ""));
  });
  const head = columns.map((text, at) => h("span", { css: { "grid-column": String(at + 2) } }, text));
  const grid = h(
    "div",
    { class: "heat", role: "grid", "aria-label": label, tabindex: 0, css: { "--columns": String(width), "--rows": String(rows.length) } },
    h("div", { class: "heat-row heat-head", "aria-hidden": "true" }, head),
    body,
  );

  let [row, column] = placeOf(places, cells, start);
  const nodeAt = (r, c) => places[r]?.[c] ?? null;
  const tell = (cell) => show(tip, cell ? describe(cell) : "");
  const point = (r, c, quiet = false) => {
    nodeAt(row, column)?.classList.remove("has-cursor");
    [row, column] = [r, c];
    const node = nodeAt(row, column);
    if (!node) return;
    node.classList.add("has-cursor");
    moved?.(cells.get(node));
    if (!quiet) tell(cells.get(node));
  };
  const step = (down, right) => {
    // Skip rows that are too short (February); stop at the edges.
    for (let r = row + down, c = column + right; r >= 0 && r < rows.length && c >= 0 && c < width; r += down, c += right) {
      if (nodeAt(r, c)) return point(r, c);
    }
    return undefined;
  };
  const keys = {
    ArrowUp: () => step(-1, 0),
    ArrowDown: () => step(1, 0),
    ArrowLeft: () => step(0, -1),
    ArrowRight: () => step(0, 1),
    Home: () => point(row, places[row].findIndex(Boolean)),
    End: () => point(row, places[row].findLastIndex(Boolean)),
    Enter: () => nodeAt(row, column) && open(cells.get(nodeAt(row, column))),
  };
  grid.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target !== grid) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  grid.addEventListener("focus", () => point(row, column));
  grid.addEventListener("pointerover", (event) => cells.has(event.target) && tell(cells.get(event.target)));
  grid.addEventListener("pointerleave", () => tell(document.activeElement === grid ? cells.get(nodeAt(row, column)) : null));
  grid.addEventListener("click", (event) => cells.has(event.target) && open(cells.get(event.target)));
  point(row, column, true);
  return h("div", { class: "heat-whole" }, h("div", { class: "heat-frame" }, grid), h("div", { class: "heat-foot" }, tip, legend(most)));
}

/** The place of a cell; without it, of the first cell with a count, or of the first one. */
function placeOf(places, cells, start) {
  let first = null;
  let filled = null;
  for (const [r, nodes] of places.entries()) {
    for (const [c, node] of nodes.entries()) {
      if (!node) continue;
      if (cells.get(node).startMs === start) return [r, c];
      first ??= [r, c];
      if (cells.get(node).n) filled ??= [r, c];
    }
  }
  return filled ?? first ?? [0, 0];
}
