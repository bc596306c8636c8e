// The dialog with all there is to know of one device; it is asked for anew at each change while it is open.

import { age, h } from "./dom.js";
import { mark } from "./draw.js";

export class Details {
  constructor(dialog) {
    this.dialog = dialog;
    this.shown = null;
    dialog.addEventListener("close", () => { this.shown = null; });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }

  async open(node, tile) {
    this.shown = { node, resource: tile.resource, id: tile.id };
    await this.refresh();
    if (this.shown && !this.dialog.open) this.dialog.showModal();
  }

  async refresh() {
    const wanted = this.shown;
    if (!wanted) return;
    let known = null;
    try {
      const answer = await fetch(`device.json?${new URLSearchParams(wanted)}`);
      known = answer.ok ? await answer.json() : null;
    } catch {
      return; // the bar says that the server does not answer
    }
    if (wanted === this.shown) this.draw(wanted, known);
  }

  draw(wanted, known) {
    const hadFocus = this.dialog.contains(document.activeElement);
    const close = h("button", { type: "button", class: "close", "aria-label": "Close", autofocus: true }, "✕");
    close.addEventListener("click", () => this.dialog.close());
    const scrolled = this.dialog.scrollTop;
    this.dialog.replaceChildren(
      h("header", {}, h("h2", { id: "details-title", class: "path" }, wanted.id), close),
      ...(known ? body(known) : [h("p", {}, "Nobody lists this device any more.")]),
    );
    this.dialog.scrollTop = scrolled;
    if (hadFocus) close.focus();
  }
}

function body(known) {
  return [
    h(
      "p",
      { class: "diagnosis" },
      mark(known.health),
      h("b", {}, known.is_listed ? known.health : "No longer listed"),
      known.since === null ? "" : h("span", { class: "quiet" }, " for ", age(known.since)),
    ),
    known.reason ? h("p", { class: "reason" }, known.reason) : "",
    known.leaves_at === null ? "" : h("p", {}, "Leaves the list in ", age(known.leaves_at), " unless it comes back."),
    known.is_outdated
      ? h("p", {}, "Its holders were given what is no longer right: restart the pod to refresh.")
      : "",
    facts([
      ["Resource", known.resource],
      ["Node", known.node],
      ["NUMA", known.numa_nodes.join(", ") || "none"],
      ["Files", known.files.join("\n") || "none"],
    ]),
    heading("Held by", known.members.length > 0),
    memberTable(known),
    heading("Attributes", Object.keys(known.attributes).length > 0),
    facts(Object.entries(known.attributes)),
    heading("Health", known.segments.length > 0),
    segmentList(known.segments),
  ];
}

const heading = (text, isShown) => (isShown ? h("h3", {}, text) : "");

function facts(pairs) {
  if (!pairs.length) return "";
  return h("dl", {}, pairs.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))));
}

function memberTable(known) {
  if (!known.members.length) return "";
  if (known.members.length === 1) {
    const [one] = known.members;
    return h("div", {}, h("p", {}, holders(one) || (one.claims.length ? "" : "nobody")), claims(one));
  }
  const rest = known.more_members ? h("p", { class: "quiet" }, `and ${known.more_members} more replicas`) : "";
  const rows = known.members.map((one) =>
    h("tr", {}, h("td", { class: "path" }, one.id), h("td", {}, holders(one) || (one.claims.length ? "" : "free"), claims(one)), h("td", {}, one.health)),
  );
  const heads = ["Replica", "Held by", "Health"].map((head) => h("th", { scope: "col" }, head));
  const table = h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows));
  return h("div", { class: "scroll tall", tabindex: "0", role: "group", "aria-label": "Replicas" }, table, rest);
}

const holders = (one) => one.holders.join(", ") || (one.is_held && !one.claims.length ? "may be held" : "");

const claims = (one) =>
  one.claims.map((claim) =>
    h("p", { class: "claim" }, claim.text, claim.since === null ? "" : h("span", {}, ", for ", age(claim.since))),
  );

function segmentList(segments) {
  return h(
    "ol",
    { class: "segments" },
    segments.map((one) =>
      h(
        "li",
        {},
        mark(one.health),
        h("span", { class: "quiet" }, new Date(one.since * 1000).toLocaleTimeString()),
        h("span", {}, one.health === "Gone" ? "in no list" : one.health, one.reason ? `: ${one.reason}` : ""),
      ),
    ),
  );
}
