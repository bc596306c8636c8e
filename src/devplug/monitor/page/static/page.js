// The page: it listens to the server's events, each of which is the whole truth, and draws what they say.

import { h, keyed, now, setServerTime, setText, tick } from "./dom.js";
import { changeSentence, drawChanges } from "./changes.js";
import { anchor, drawNodes } from "./draw.js";
import { Details } from "./details.js";
import { Keys } from "./keys.js";

const QUIET_SECONDS = 45; // The server speaks every 15 s.
const ANNOUNCED = 3;

const main = document.getElementById("boards");
const filter = document.getElementById("filter");
const details = new Details(document.getElementById("details"));
const keys = new Keys(main, filter);

let source = null;
let state = null;
let heardAt = Date.now();
let asked = "";
let again = null;

// ── events ──

function connect() {
  clearTimeout(again);
  source?.close();
  source = new EventSource(asked ? `events?${new URLSearchParams({ filter: asked })}` : "events");
  source.addEventListener("state", (event) => {
    heardAt = Date.now();
    show(JSON.parse(event.data));
    link("live", "live");
  });
  source.addEventListener("error", () => {
    link("lost", "no answer, trying again");
    // The browser tries again by itself, but not after an answer that was no event stream.
    if (source.readyState === EventSource.CLOSED) again = setTimeout(connect, 3000);
  });
}

function link(kind, text) {
  document.getElementById("link").dataset.state = kind;
  setText(document.getElementById("link-text"), text);
}

setInterval(() => {
  tick();
  if (Date.now() - heardAt > QUIET_SECONDS * 1000) {
    heardAt = Date.now();
    link("lost", "no answer, trying again");
    connect();
  }
}, 1000);

// ── drawing ──

function show(next) {
  setServerTime(next.at);
  const focused = document.activeElement?.classList.contains("tile") ? document.activeElement.dataset.key : null;
  announce(state, next);
  state = next;
  drawNodes(main, next, (node, tile) => details.open(node, tile));
  keyed(
    document.getElementById("nodes"),
    [...next.nodes.map((node) => ({ name: node.name, unhealthy: node.unhealthy })), ...next.waiting.map((name) => ({ name }))],
    (node) => node.name,
    (node) => h("a", { href: `#${anchor(node.name)}` }, node.name, node.unhealthy ? h("span", { class: "badge" }, `${node.unhealthy} unhealthy`) : ""),
  );
  drawChanges(document.getElementById("changes"), next.changes, next.nodes.length > 1);
  document.getElementById("no-changes").hidden = next.changes.length > 0;
  applyFilter();
  keys.settle(focused && document.activeElement === document.body ? focused : null);
  const unhealthy = next.nodes.reduce((sum, node) => sum + node.unhealthy, 0);
  const names = next.nodes.map((node) => node.name).slice(0, 3).join(", ");
  document.title = `${unhealthy ? `(${unhealthy} unhealthy) ` : ""}${names ? `${names} - ` : ""}devplug`;
  details.refresh();
  main.dataset.drawn = String(now());
}

function announce(before, after) {
  if (!before) return;
  const known = new Set(before.changes.map((change) => JSON.stringify(change)));
  const fresh = after.changes.filter((change) => !known.has(JSON.stringify(change)));
  if (!fresh.length) return;
  const told = fresh.slice(0, ANNOUNCED).map(changeSentence).join(". ");
  const rest = fresh.length > ANNOUNCED ? `. And ${fresh.length - ANNOUNCED} more changes` : "";
  setText(document.getElementById("live"), told + rest);
}

// ── the filter ──

let soon = null;

filter.addEventListener("input", () => {
  applyFilter();
  keys.settle(null);
  clearTimeout(soon);
  soon = setTimeout(askFiltered, 300);
});

// What is not drawn is only found by the server.
function askFiltered() {
  const wanted = filter.value.trim();
  const mustAsk = state && (asked !== "" || state.nodes.some((node) => node.hidden));
  if (!mustAsk || wanted === asked) return;
  asked = wanted;
  connect();
}

function applyFilter() {
  const wanted = filter.value.trim().toLowerCase();
  for (const tile of main.querySelectorAll(".tile")) tile.parentElement.hidden = !tile.searched.includes(wanted);
  for (const selector of [".group", ".board"]) {
    for (const part of main.querySelectorAll(selector)) {
      part.hidden = wanted !== "" && !part.querySelector("li:not([hidden]) > .tile");
    }
  }
  const noMatch = document.getElementById("no-match");
  noMatch.hidden = wanted === "" || state === null || main.querySelector("li:not([hidden]) > .tile") !== null;
  setText(noMatch, `Nothing matches “${filter.value.trim()}”.`);
}

document.documentElement.classList.add("with-script");
connect();
