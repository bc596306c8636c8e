// The list of what has happened, and the sentences by which it is announced.

import { age, h, keyed, middle } from "./dom.js";

// A colon stands before a text, and is left out without one.
const WORDS = {
  appeared: "appeared:",
  vanished: "is gone",
  healthy: "is healthy:",
  unhealthy: "is unhealthy:",
  held: "is held by",
  released: "was released by",
  "not-known": "is not known any more",
  lost: "was lost while it was held by",
  registered: "is registered",
  "not-registered": "is not registered:",
  ready: "is ready:",
  "not-ready": "is not ready:",
  "config-refused": "was refused:",
  "config-applied": "was applied:",
};
const BAD = new Set(["unhealthy", "lost", "not-registered", "not-ready", "config-refused"]);
const GOOD = new Set(["healthy", "registered", "ready", "config-applied"]);

export function drawChanges(list, changes, hasSeveralNodes) {
  const seen = new Map();
  const numbered = changes.map((change) => {
    const text = JSON.stringify(change);
    seen.set(text, (seen.get(text) ?? 0) + 1);
    return { ...change, number: seen.get(text), hasSeveralNodes };
  });
  keyed(list, numbered, (change) => JSON.stringify(change), changeItem);
}

function changeItem(change) {
  const kind = BAD.has(change.kind) ? "bad" : GOOD.has(change.kind) ? "good" : "";
  return h(
    "li",
    {},
    h("span", { class: "when" }, age(change.at)),
    h(
      "span",
      { class: "what" },
      change.device ? "" : `${subjectOf(change)} `,
      change.device || change.resource ? h("b", { class: "path" }, ...middle(change.device || change.resource)) : "",
      change.more_devices ? ` and ${change.more_devices} more` : "",
      " ",
      h("span", { class: kind }, verbOf(change)),
      change.text ? ` ${change.text}` : "",
      change.times > 1 ? h("span", { class: "quiet" }, ` × ${change.times}`) : "",
      h("span", { class: "quiet of" }, [change.device ? change.resource : "", change.hasSeveralNodes ? change.node : ""].filter(Boolean).join(" on ")),
    ),
  );
}

// What a change without a device is about: a resource, the file, or the process.
function subjectOf(change) {
  if (change.resource) return "resource";
  return change.kind.startsWith("config-") ? "the configuration" : "devplug";
}

function verbOf(change) {
  const words = WORDS[change.kind] ?? change.kind;
  return change.text ? words : words.replace(/:$/, "");
}

export function changeSentence(change) {
  const more = change.more_devices ? `and ${change.more_devices} more` : "";
  const subject = change.device ? [change.device, more, "of", change.resource] : [subjectOf(change), change.resource];
  return [...subject, verbOf(change), change.text].filter(Boolean).join(" ");
}
