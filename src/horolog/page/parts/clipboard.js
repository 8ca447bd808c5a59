// Copying and saving what the page shows.

import { h } from "../core/dom.js";
import { toast } from "./toast.js";

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Without TLS, from another machine: the old way.
  const field = h("textarea", { class: "heard" });
  field.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("the browser does not let this page copy");
}

/** A button labelled `what` that copies the result of `text()`. */
export function copyButton(what, text) {
  const act = async () => {
    try {
      await copy(text());
      toast(`Copied: ${what}`, "good");
    } catch (error) {
      toast(`Not copied: ${error.message}`, "bad");
    }
  };
  return h("button", { type: "button", class: "small", title: `Copy ${what}`, onclick: act }, "Copy");
}

/** Save bytes as a file, with a type that no browser opens by content. */
export function download(name, bytes) {
  const url = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replaceAll(/[^\w.-]/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
