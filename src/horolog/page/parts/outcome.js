// The outcome of a request to the broker, in words, shown on the view until the next one.
//
// While hand-over runs, every answer may be "too late". Without an answer the outcome is unknown, and never shown as a
// failure.

import { brokerNow } from "../core/clock.js";
import { h, show } from "../core/dom.js";
import { timeText } from "../core/time.js";

const SENTENCES = {
  already_delivered: "Too late: it has been handed over already, and nothing was changed.",
  due_time_changed: "Nothing was changed: somebody else has moved it meanwhile. Check its new due time, and decide again.",
  not_found: "Nothing was changed: no such message is pending. It was recalled, moved, or dropped by retention.",
  in_lake: "Nothing was changed: the message is in the lake, which cannot be read now.",
  schedule_changed: "Nothing was changed: somebody else has changed the schedule meanwhile. Check it, and decide again.",
  unauthorized: "Nothing was changed: you are not logged in.",
  forbidden: "Nothing was changed: you have no right to do this.",
  unreachable: "No answer came, so it may have been done or not: check before you repeat it.",
};

/** {kind, text} of a Failure; `isUnknown` if it may have been done nevertheless. */
export function refusalOf(error) {
  const unknown = error.code === "unreachable" || error.code === "garbled";
  const sentence = SENTENCES[error.code] ?? (unknown ? SENTENCES.unreachable : `Nothing was changed: ${error.message}`);
  const detail = SENTENCES[error.code] && error.code !== "unreachable" ? error.message : "";
  return { kind: unknown ? "warn" : "bad", code: error.code, text: sentence, detail, isUnknown: unknown };
}

/** An area for outcomes: {node, tell({kind, text, detail}, ...buttons), clear()}. */
export function outcomePlace() {
  const node = h("div", { class: "outcomes", role: "status", "aria-live": "polite" });
  const tell = ({ kind, code = "", text, detail = "" }, ...buttons) => {
    const at = timeText(brokerNow());
    show(
      node,
      h(
        "div",
        { class: `outcome ${kind}`, data: { code } },
        h("strong", {}, text),
        detail && h("p", {}, detail),
        h("p", { class: "faint" }, at),
        buttons.length ? h("div", { class: "tools" }, buttons) : null,
      ),
    );
  };
  return { node, tell, clear: () => show(node) };
}
