// What is going on: figures of now, from the one look a second that all tabs share.

import { h, show } from "../core/dom.js";
import { count } from "../core/format.js";
import { onOverview } from "../core/live.js";
import { register } from "../core/router.js";
import { fromNowText, timeNode } from "../core/time.js";
import { errorState, loading } from "../parts/states.js";

/** One large number with its name, and something small below. */
function figure(label, value, note = "") {
  return h("div", { class: "figure" }, h("span", { class: "label" }, label), h("span", { class: "value" }, value), h("span", { class: "note" }, note));
}

function figures(look) {
  return h(
    "div",
    { class: "figures live" },
    figure("Pending", count(look.pending)),
    figure("Next due", look.next_due_ms ? fromNowText(look.next_due_ms, look.now_ms) : "–", timeNode(look.next_due_ms)),
    figure("Problems", count(look.problems)),
  );
}

function overview(root, { signal }) {
  const body = h("div", {}, loading());
  root.append(h("h1", {}, "Overview"), body);
  const draw = ({ value, error }) => {
    if (value) show(body, figures(value));
    else show(body, errorState(error));
  };
  onOverview(draw, signal);
}

register({ name: "", title: "Overview", key: "o", order: 10, render: overview });
