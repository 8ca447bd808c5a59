// Dialogs: one that shows something, and one that asks before an action.

import { h } from "../core/dom.js";

/** Show a dialog with `body` (a node); `actions` are buttons {label, value, kind}. Returns the chosen value, null for Esc. */
export function dialog({ title, body, actions = [{ label: "Close", value: null }], ready }) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const buttons = actions.map(({ label, value, kind = "" }) =>
      h("button", { type: "button", class: kind, onclick: () => end(value) }, label),
    );
    const node = h(
      "dialog",
      { class: "box", "aria-label": title },
      h("h2", {}, title),
      h("div", { class: "dialog-body" }, body),
      h("div", { class: "buttons" }, buttons),
    );
    let chosen = null;
    const end = (value) => {
      chosen = value;
      node.close();
    };
    node.addEventListener("close", () => {
      node.remove();
      before?.focus?.();
      resolve(chosen);
    });
    node.addEventListener("click", (event) => event.target === node && node.close()); // a click beside the box
    document.body.append(node);
    node.showModal();
    (node.querySelector("[autofocus]") ?? buttons.at(-1)).focus();
    ready?.({ node, buttons, end });
  });
}

/**
 * Ask before an action; returns whether the user agrees. `body` is text or a node. With `typed` the user must type that
 * text first: for actions that cannot be undone. The button that agrees never has the focus.
 */
export async function confirm({ title, body, label = "Do it", kind = "primary", typed = "" }) {
  const field = typed && h("input", { autofocus: true, autocomplete: "off", spellcheck: "false", "aria-label": `type ${typed}` });
  const content = h("div", {}, body, field && h("label", { class: "typed" }, "To go on, type ", h("code", {}, typed), field));
  const actions = [
    { label, value: true, kind },
    { label: "Leave it", value: false },
  ];
  const ready = ({ buttons, end }) => {
    if (!field) return;
    const [act] = buttons;
    act.disabled = true;
    field.addEventListener("input", () => (act.disabled = field.value !== typed));
    field.addEventListener("keydown", (event) => event.key === "Enter" && !act.disabled && end(true));
  };
  return (await dialog({ title, body: content, actions, ready })) === true;
}

