// What a tile shows of the last hour, and what a screen reader is told of it.

import { svg } from "./dom.js";

const HEIGHTS = { h: [5, 3], u: [0, 8], "?": [2, 6], ".": [6.5, 1] };

export function strip(letters) {
  const count = letters.length;
  const rects = [];
  for (let start = 0, end = 0; start < count; start = end) {
    while (end < count && letters[end] === letters[start]) end += 1;
    const letter = letters[start];
    if (!(letter in HEIGHTS)) continue;
    const [y, height] = HEIGHTS[letter];
    const kind = { h: "h", u: "u", ".": "g" }[letter] ?? "q";
    rects.push(svg("rect", { class: kind, x: start, y, width: end - start, height }));
  }
  return svg(
    "svg",
    { class: "strip", viewBox: `0 0 ${count} 8`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", x: 0, y: 7, width: count, height: 1 }),
    ...rects,
  );
}

export function sentence(tile) {
  const words = [`${tile.id}, ${tile.resource}, ${tile.health}${tile.reason ? `: ${tile.reason}` : ""}`];
  if (tile.replicas > 1) words.push(`${tile.held} of ${tile.replicas} replicas held`);
  if (tile.holders.length) words.push(`held by ${tile.holders.join(", ")}${tile.more_holders ? ` and ${tile.more_holders} more` : ""}`);
  else words.push(tile.held ? "may be held" : "not held");
  if (tile.is_outdated) words.push("restart the pod to refresh");
  const minutes = tile.strip.split("u").length - 1;
  if (minutes && tile.health === "Healthy") words.push("was unhealthy within the last hour");
  return words.join("; ");
}
