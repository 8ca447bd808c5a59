// Start of the page: draws the frame around the views, then the view that the address names.

import { show } from "./core/dom.js";
import { learnIdentity, userName } from "./core/identity.js";
import { onKeys, showHelp, startKeys } from "./core/keys.js";
import { isStale, newest, onOverview, startLive } from "./core/live.js";
import { startRouter } from "./core/router.js";
import { durationText, onZone, switchZone, timeText, zoneName } from "./core/time.js";
import "./views/index.js";

const forever = new AbortController().signal;
const at = (id) => document.getElementById(id);

function drawState() {
  const { value, atMs, error } = newest();
  const node = at("link-state");
  if (error && !value) {
    node.className = "link-state bad";
    show(node, "no answer");
  } else if (isStale()) {
    node.className = "link-state stale";
    show(node, `stale for ${durationText(Math.max(Date.now() - atMs, 0))}`);
  } else if (value) {
    node.className = `link-state ${value.healthy ? "good" : "bad"}`;
    show(node, value.healthy ? "healthy" : "not healthy");
  }
  node.title = error ? error.message : "";
  document.body.classList.toggle("is-stale", isStale());
}

function drawClock() {
  const { value } = newest();
  const zone = zoneName() === "utc" ? "UTC" : "local";
  show(at("clock"), value ? `${timeText(value.now_ms)} ${zone}` : zone);
}

function drawTop() {
  const { value } = newest();
  const user = userName();
  if (value) show(at("broker-name"), user ? `${value.name}, as ${user}` : value.name);
  drawState();
  drawClock();
}

onKeys("?", "this help", showHelp);
onKeys("z", "local time or UTC", switchZone);
at("help").addEventListener("click", showHelp);
at("clock").addEventListener("click", switchZone);
onZone(drawClock, forever);
onOverview(drawTop, forever);
startKeys();
startLive();
drawTop();
await learnIdentity();
startRouter();
