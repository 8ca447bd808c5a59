// Elements from names and text. Text becomes text nodes and is never parsed as HTML, so that the content of a message,
// a name or a property is only shown, and never executed.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: h("a", {class: "x", href: "#/", onclick: f, data: {id: 1}}, "text", other, [more]). */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "css") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name === "href") node.setAttribute(name, own(value));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

/** Links lead to this page only. */
function own(href) {
  if (!String(href).startsWith("#") && !String(href).startsWith("/")) throw new Error(`a link that leaves the page: ${href}`);
  return href;
}

function add(node, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false) continue;
    if (Array.isArray(child)) add(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace the content of a node. */
export function show(node, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  node.replaceChildren(fresh);
  return node;
}
