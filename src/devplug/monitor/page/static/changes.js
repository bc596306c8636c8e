// The list of what has happened, and the sentences by which it is announced.

import { age, h, keyed } from "./dom.js";

const WORDS = { held: "held by", released: "released by", lost: "lost under", "not-registered": "not registered", "not-ready": "not ready", "config-refused": "config refused", "config-applied": "config applied" };
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
      change.device ? h("b", { class: "path" }, change.device) : "",
      " ",
      h("span", { class: kind }, WORDS[change.kind] ?? change.kind),
      change.text ? ` ${change.text}` : "",
      h("span", { class: "quiet of" }, [change.resource, change.hasSeveralNodes ? change.node : ""].filter(Boolean).join(" on ")),
    ),
  );
}

export function changeSentence(change) {
  return [change.resource, change.device, WORDS[change.kind] ?? change.kind, change.text].filter(Boolean).join(" ");
}
