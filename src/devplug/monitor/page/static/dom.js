// How elements are made and kept: text goes in as text only, so nothing that a device is called can be markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// Make `parent` have one child for each item, in order. A child whose item is as before is left alone, so
// focus and selection stay. `make` returns an element; `update` changes one, and returns it or its successor.
export function keyed(parent, items, keyOf, make, update = (_, item) => make(item)) {
  const old = new Map([...parent.children].map((child) => [child.itemKey, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const text = JSON.stringify(item);
    const before = old.get(key);
    old.delete(key);
    let child = before;
    if (!before) {
      child = make(item);
    } else if (before.itemText !== text) {
      child = update(before, item);
      if (child !== before) {
        if (place === before) place = child;
        before.replaceWith(child);
      }
    }
    child.itemKey = key;
    child.itemText = text;
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
}

const LONG = 48;
const HALF = 22;

// A long text without its middle: both ends tell more. The whole text is in its title.
export function middle(text) {
  if (text.length <= LONG) return [text];
  return [h("span", { title: text }, text.slice(0, HALF), "…", text.slice(-HALF))];
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// ── times ──

// Seconds that the server's clock is ahead of this one.
let ahead = 0;

export function setServerTime(seconds) {
  ahead = seconds - Date.now() / 1000;
}

export function now() {
  return Date.now() / 1000 + ahead;
}

export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole >= 86400) return `${Math.floor(whole / 86400)}d`;
  if (whole >= 3600) return `${Math.floor(whole / 3600)}h`;
  if (whole >= 60) return `${Math.floor(whole / 60)}m`;
  return `${whole}s`;
}

// A time that counts on: how long ago `since` was, or how long it is until then.
export function age(since) {
  const element = h("time", { datetime: iso(since), title: new Date(since * 1000).toLocaleString() });
  element.textContent = span(Math.abs(now() - since));
  return element;
}

function iso(seconds) {
  return new Date(seconds * 1000).toISOString();
}

export function tick() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    setText(element, span(Math.abs(now() - Date.parse(element.dateTime) / 1000)));
  }
}
