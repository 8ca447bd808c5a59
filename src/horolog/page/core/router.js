// Views and their addresses: #/topics/orders?tab=groups is the view "topics" with params ["orders"] and a query.

import { h, show } from "./dom.js";
import { isAdmin } from "./identity.js";
import { onKeys } from "./keys.js";

const views = new Map();
let leaving = new AbortController();
let shown = "";

/**
 * Register a view.
 *
 * name    first part of its address: "topics"; "" is the first page
 * title   in the navigation and the window's title
 * key     "g" and this letter go there; none: it is not in the navigation
 * order   place in the navigation
 * closed  only for administrators of a broker with an access file
 * render  (root, {params, query, signal, title}) fills the empty `root`; `signal` is aborted when the view is left,
 *         so give it to every request, watch and listener. title("…") changes the window's title.
 */
export function register(view) {
  if (views.has(view.name)) throw new Error(`two views are called ${view.name}`);
  views.set(view.name, view);
  if (view.key) onKeys(`g ${view.key}`, view.title, () => go(view.name));
}

/** An address of this page: link("topics", "orders") or link("search", {topic: "orders"}). */
export function link(name, ...rest) {
  const query = typeof rest.at(-1) === "object" ? rest.pop() : {};
  const path = [name, ...rest].map((each) => encodeURIComponent(each)).join("/");
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(given).toString();
  return `#/${path}${search ? `?${search}` : ""}`;
}

/** Go there. */
export function go(name, ...rest) {
  location.hash = link(name, ...rest);
}

/** Change the query of the address without leaving the view: for filters that a reload should keep. */
export function keepQuery(query) {
  const [name, ...params] = address().parts;
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  history.replaceState(null, "", link(name, ...params, Object.fromEntries(given)));
  shown = location.hash;
}

function address() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").map(decoded);
  return { parts, query: new URLSearchParams(search) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const isClosed = (view) => view.closed && !isAdmin();

function drawNavigation(current) {
  const inside = [...views.values()].filter((view) => view.key && !isClosed(view)).sort((a, b) => a.order - b.order);
  const links = inside.map((view) =>
    h(
      "a",
      { href: link(view.name), "aria-current": view.name === current ? "page" : undefined, title: `g ${view.key}` },
      view.title,
    ),
  );
  show(document.getElementById("nav"), links);
  links.find((each) => each.hasAttribute("aria-current"))?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function route() {
  const { parts, query } = address();
  const [name, ...params] = parts;
  const view = views.get(name);
  leaving.abort();
  leaving = new AbortController();
  shown = location.hash;
  const main = document.getElementById("main");
  const root = h("div", { class: `view view-${view?.name || "overview"}` });
  show(main, root);
  scrollTo(0, 0);
  const title = (text) => (document.title = `${text} · horolog`);
  drawNavigation(view?.under ?? name);
  if (!view) {
    title("Not found");
    show(root, h("h1", {}, "There is no such view"), h("p", {}, h("a", { href: "#/" }, "To the overview")));
    return;
  }
  title(view.title);
  if (isClosed(view)) {
    show(root, h("h1", {}, view.title), h("div", { class: "state empty" }, h("strong", {}, "This view is for administrators"), h("p", {}, "Your rights are to topics and groups.")));
    return;
  }
  view.render(root, { params: params.filter((each) => each !== ""), query, signal: leaving.signal, title });
}

/** Show the view of the address, now and whenever it changes; called once, when all views are registered. */
export function startRouter() {
  addEventListener("hashchange", () => location.hash !== shown && route());
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  route();
}

/** Draw the present view again, as after an action that has changed its data. */
export function redraw() {
  route();
}
