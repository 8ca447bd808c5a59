// Lines over the last two minutes: one point for each look at the broker, gaps where there was none.

import { h, s } from "../core/dom.js";
import { rate } from "../core/format.js";
import { clockText } from "../core/time.js";

const WIDTH = 600;
const HEIGHT = 120;
const GAP_MS = 5_000; // longer pauses between looks are gaps

/** A round number at or above `most`, for the axis. */
export function roundUp(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((each) => each >= most * 0.999);
}

function pathOf(points, fromMs, toMs, top) {
  let text = "";
  let last = -Infinity;
  for (const [ms, value] of points) {
    if (value === null || value === undefined) {
      last = -Infinity;
      continue;
    }
    const x = ((ms - fromMs) / Math.max(toMs - fromMs, 1)) * WIDTH;
    const y = HEIGHT - (value / top) * (HEIGHT - 4) - 1;
    text += `${ms - last > GAP_MS ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    last = ms;
  }
  return text;
}

/** series: [{label, points: [[ms, value], …]}]; the legend has the newest value. */
export function lines({ series, spanMs, nowMs, label }) {
  const fromMs = nowMs - spanMs;
  const most = Math.max(0, ...series.flatMap(({ points }) => points.filter(([ms]) => ms >= fromMs).map(([, value]) => value ?? 0)));
  const top = roundUp(most);
  const grid = [0.5, 1].map((part) => s("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT - part * (HEIGHT - 4) - 1, y2: HEIGHT - part * (HEIGHT - 4) - 1 }));
  const paths = series.map(({ points }, at) => s("path", { class: `line series-${at + 1}`, d: pathOf(points.filter(([ms]) => ms >= fromMs), fromMs, nowMs, top) }));
  const legend = series.map(({ label: name, points }, at) =>
    h("span", { class: "key" }, h("i", { class: `swatch series-${at + 1}` }), `${name} `, h("b", {}, rate(points.at(-1)?.[1] ?? null))),
  );
  return h(
    "figure",
    { class: "lines" },
    h("figcaption", { class: "keys-of-chart" }, legend),
    h(
      "div",
      { class: "plot" },
      h("span", { class: "axis top-left" }, rate(top)),
      h("span", { class: "axis middle-left" }, rate(top / 2)),
      s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, grid, s("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }), paths),
    ),
    h("div", { class: "axis under" }, h("span", {}, clockText(fromMs)), h("span", {}, clockText(nowMs))),
  );
}
