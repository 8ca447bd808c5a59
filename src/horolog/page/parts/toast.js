// Short notices in the corner: what was done, or why not.

import { h } from "../core/dom.js";

const SHOWN_MS = 6_000;
const MOST = 4;

/** Show a notice; `kind` is "good", "bad" or "". A bad one stays until it is clicked. */
export function toast(text, kind = "") {
  const box = document.getElementById("toasts");
  const node = h("div", { class: `toast ${kind}` }, h("span", {}, text));
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: () => node.remove() }, "×");
  node.append(close);
  box.append(node);
  while (box.children.length > MOST) box.firstElementChild.remove();
  if (kind !== "bad") setTimeout(() => node.remove(), SHOWN_MS);
}

/** Show a Failure. */
export const toastError = (error) => toast(error.field ? `${error.message} (${error.field})` : error.message, "bad");
