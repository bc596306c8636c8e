// From the state to elements: nodes, summaries, boards, tiles.

import { age, h, keyed, svg } from "./dom.js";
import { sentence, strip } from "./tiles.js";

const DENSE = 48;
const WIDE = 16; // Tiles; a board with more takes the whole width.
const LONG = 20; // Letters; a group with such an ID has wider tiles.
const TAIL = 9;
const WHO_TAIL = 14;
const MARKS = { Healthy: "✓", Unhealthy: "✕", Gone: "–" };

export const healthClass = (health) =>
  ({ Healthy: "healthy", Unhealthy: "unhealthy", Gone: "gone" })[health] ?? "unknown";
export const mark = (health) =>
  h("span", { class: `mark ${healthClass(health)}`, "aria-hidden": "true" }, MARKS[health] ?? "?");
export const tileKey = (node, tile) => JSON.stringify([node, tile.resource, tile.id]);

// ── nodes ──

export function drawNodes(main, state, onOpen) {
  const waiting = state.waiting.map((name) => ({ name, isWaiting: true }));
  keyed(
    main,
    [...state.nodes, ...waiting],
    (node) => node.name,
    (node) => updateNode(h("section", { class: "node", id: anchor(node.name), "aria-label": `Node ${node.name}` }), node, onOpen),
    (section, node) => updateNode(section, node, onOpen),
  );
}

export const anchor = (name) => `node-${encodeURIComponent(name)}`;

function updateNode(section, node, onOpen) {
  const parts = node.isWaiting
    ? [{ part: "title", node: { name: node.name } }, { part: "waiting" }]
    : [
        { part: "title", node: pick(node, ["name", "healthy", "unhealthy", "not_known", "held"]) },
        { part: "troubles", texts: troubles(node) },
        { part: "resources", rows: node.resources },
        { part: "drivers", drivers: node.drivers },
        { part: "boards", boards: node.boards },
        { part: "rest", hidden: node.hidden, isEmpty: node.boards.length === 0, resources: node.resources.length },
        { part: "processes", processes: node.processes },
      ];
  keyed(
    section,
    parts,
    (part) => part.part,
    (part) => makers[part.part](part, node.name, onOpen),
    (element, part) =>
      part.part === "boards"
        ? updateBoards(element, part.boards, node.name, onOpen)
        : makers[part.part](part, node.name, onOpen),
  );
  return section;
}

const pick = (value, names) => Object.fromEntries(names.map((name) => [name, value[name]]));

function troubles(node) {
  return [
    ...node.problems,
    ...(node.kubelet_trouble ? [`The kubelet does not say who holds what: ${node.kubelet_trouble}`] : []),
    ...node.processes.flatMap((process) => process.faults.map((fault) => `Not ready: ${fault}`)),
    ...node.processes.flatMap((process) => process.problems.map((text) => `Configuration not applied: ${text}`)),
  ];
}

const makers = {
  title: ({ node }) =>
    h(
      "header",
      { class: "title" },
      h("h2", {}, node.name),
      node.healthy === undefined
        ? null
        : h(
            "p",
            { class: "counts" },
            h("span", {}, h("b", {}, `${node.healthy + node.unhealthy + node.not_known}`), " devices"),
            h("span", { class: node.unhealthy ? "bad" : "" }, h("b", {}, `${node.unhealthy}`), " unhealthy"),
            node.not_known ? h("span", { class: "doubt" }, h("b", {}, `${node.not_known}`), " not known") : null,
            h("span", {}, h("b", {}, `${node.held}`), " held"),
          ),
    ),
  waiting: () => h("p", { class: "quiet" }, "Asking …"),
  troubles: ({ texts }) =>
    h(
      "ul",
      { class: "troubles", "aria-label": "Problems", hidden: texts.length === 0 },
      texts.map((text) => h("li", {}, text)),
    ),
  resources: ({ rows }) => resourceTable(rows),
  drivers: ({ drivers }) =>
    h(
      "ul",
      { class: "drivers", "aria-label": "DRA drivers", hidden: drivers.length === 0 },
      drivers.map((one) => h("li", { class: one.is_well ? "" : "bad" }, one.text)),
    ),
  boards: ({ boards }, name, onOpen) => updateBoards(h("div", { class: "boards" }), boards, name, onOpen),
  rest: ({ hidden, isEmpty, resources }) =>
    h(
      "p",
      { class: "quiet rest" },
      hidden ? `${hidden} more are not drawn: unhealthy and held ones come first. The filter finds them.` : "",
      isEmpty && !resources ? "No plugin has registered here yet." : "",
    ),
  processes: ({ processes }) =>
    h(
      "ul",
      { class: "processes quiet", "aria-label": "Processes of devplug", hidden: processes.length === 0 },
      processes.map((one) =>
        h(
          "li",
          {},
          `devplug ${one.version}, process ${one.process}, `,
          one.faults.length ? h("b", { class: "bad" }, "not ready") : "ready",
          ", up ",
          age(one.started_at),
          one.file ? "; " : "",
          one.file ? h("span", { class: "path" }, one.file) : "",
          one.applied_at ? " applied " : "",
          one.applied_at ? age(one.applied_at) : "",
          one.applied_at ? " ago" : "",
        ),
      ),
    ),
};

// Roles are written out: on a narrow screen the table is laid out as lines, and browsers forget them then.
function resourceTable(rows) {
  const heads = ["Resource", "Held", "Allocatable", "Capacity", "Kubelet"];
  const head = h("tr", { role: "row" }, heads.map((text) => h("th", { scope: "col", role: "columnheader" }, text)));
  return h(
    "table",
    { class: "resources", role: "table", hidden: rows.length === 0 },
    h("thead", { role: "rowgroup" }, head),
    h("tbody", { role: "rowgroup" }, rows.map(resourceRow)),
  );
}

function resourceRow(one) {
  const share = one.replicas > 1 ? h("span", { class: "quiet" }, ` (${one.found} × ${one.replicas} replicas)`) : "";
  const cell = (name, ...children) => h("td", { role: "cell", class: name }, ...children);
  return h(
    "tr",
    { role: "row" },
    h("th", { scope: "row", role: "rowheader", "aria-label": one.name }, named(one.name)),
    cell("usage", h("span", { class: "number" }, `${one.held}`), bar(one.held, one.capacity)),
    cell(one.allocatable < one.capacity ? "bad" : "", `${one.allocatable}`),
    cell("", `${one.capacity}${one.is_registered === null ? "+" : ""}`, share),
    cell("kubelet", kubelet(one)),
  );
}

// A name may be broken behind its slash.
const named = (name) => name.split("/").flatMap((part, at) => (at ? ["/", h("wbr"), part] : [part]));

function kubelet(one) {
  const retired = one.is_retired ? "retired: waits for its holders; " : "";
  if (one.is_registered === null && one.fault) return h("span", { class: "doubt" }, one.fault);
  if (one.is_registered === null) return one.driver ? "another driver’s" : "another plugin’s";
  if (one.fault) return h("span", { class: "bad" }, `${retired}not ready`); // why stands among the troubles
  if (!one.is_registered) return h("span", { class: "quiet" }, `${retired}waits for its first device`);
  const registered = `${retired}registered${one.driver ? " for claims" : ""}`;
  if (!one.registered_at) return registered;
  return h("span", {}, `${registered} `, age(one.registered_at), " ago");
}

function bar(part, whole) {
  const width = whole ? (100 * Math.min(part, whole)) / whole : 0;
  return svg(
    "svg",
    { class: "fill", viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "track", x: 0, y: 0, width: 100, height: 6 }),
    svg("rect", { class: "part", x: 0, y: 0, width, height: 6 }),
  );
}

// ── boards ──

function updateBoards(element, boards, name, onOpen) {
  keyed(
    element,
    boards,
    (board) => `${board.numa_nodes}`,
    (board) => updateBoard(boardFrame(board, name), board, name, onOpen),
    (section, board) => updateBoard(section, board, name, onOpen),
  );
  return element;
}

function boardFrame(board, name) {
  const title = h("h3", { id: `${anchor(name)}-${board.numa_nodes.join("-") || "none"}` }, board.title);
  return h("section", { class: "board", "aria-labelledby": title.id }, title, h("div", { class: "groups" }));
}

function updateBoard(section, board, name, onOpen) {
  const isWide = !board.numa_nodes.length || board.groups.some((group) => group.tiles.length > WIDE);
  section.classList.toggle("wide", isWide);
  section.classList.toggle("unwell", board.groups.some((group) => group.tiles.some((tile) => tile.health !== "Healthy")));
  keyed(
    section.querySelector(".groups"),
    board.groups,
    (group) => group.resource,
    (group) => updateGroup(groupFrame(group), group, name, onOpen),
    (element, group) => updateGroup(element, group, name, onOpen),
  );
  return section;
}

function groupFrame(group) {
  return h(
    "div",
    { class: "group" },
    h("h4", {}, group.resource, " ", h("span", { class: "quiet count" })),
    h("ul", { class: "tiles", "aria-label": `Devices of ${group.resource}` }),
    h("p", { class: "quiet more" }),
  );
}

function updateGroup(element, group, name, onOpen) {
  const total = group.tiles.length + group.hidden;
  element.querySelector(".count").textContent = total > 1 ? `${total}` : "";
  element.querySelector(".more").textContent = group.hidden ? `and ${group.hidden} more` : "";
  element.classList.toggle("dense", group.tiles.length > DENSE);
  element.classList.toggle("long", group.tiles.some((tile) => tile.id.length > LONG));
  keyed(
    element.querySelector("ul"),
    group.tiles,
    (tile) => tile.id,
    (tile) => {
      const button = h("button", { type: "button", tabindex: "-1", "aria-haspopup": "dialog" });
      button.addEventListener("click", () => onOpen(name, button.tile));
      return updateTile(h("li", {}, button), tile, name);
    },
    (item, tile) => updateTile(item, tile, name),
  );
  return element;
}

// ── tiles ──

function updateTile(item, tile, name) {
  const button = item.firstElementChild;
  button.tile = tile;
  button.dataset.key = tileKey(name, tile);
  button.searched = [tile.id, tile.resource, tile.health, tile.reason, ...tile.holders, ...tile.files]
    .join("\n")
    .toLowerCase();
  button.className = `tile ${healthClass(tile.health)} ${tile.held ? "held" : "free"}`;
  button.setAttribute("aria-label", sentence(tile));
  button.title = tile.id;
  button.replaceChildren(
    h(
      "span",
      { class: "top" },
      mark(tile.health),
      cut(tile.id),
      tile.replicas > 1 ? h("span", { class: "share" }, `${tile.held}/${tile.replicas}`) : "",
    ),
    tile.replicas > 1 ? bar(tile.held, tile.replicas) : "",
    h("span", { class: "who" }, ...ends(who(tile), WHO_TAIL)),
    ...why(tile),
    strip(tile.strip),
  );
  return item;
}

// The end of a long ID tells more than its middle: `usb-FTDI_FT232R…A6008isP`.
function cut(id) {
  return h("span", { class: "id" }, ...ends(id, TAIL));
}

function ends(text, tail) {
  if (text.length <= tail * 2) return [h("span", { class: "start" }, text)];
  return [h("span", { class: "start" }, text.slice(0, -tail)), h("span", { class: "end" }, text.slice(-tail))];
}

function who(tile) {
  if (!tile.held) return tile.health === "Unhealthy" ? "not held" : "free";
  if (!tile.holders.length) return "may be held";
  const others = tile.holders.length - 1 + tile.more_holders;
  return others ? `${tile.holders[0]} +${others}` : tile.holders[0];
}

function why(tile) {
  const parts = [];
  if (tile.health !== "Healthy") {
    const since = tile.since === null ? "" : age(tile.since);
    parts.push(h("span", { class: "why" }, since, since ? " " : "", tile.reason || tile.health));
  }
  if (tile.leaves_at !== null) parts.push(h("span", { class: "why" }, "leaves the list in ", age(tile.leaves_at)));
  if (tile.is_outdated) parts.push(h("span", { class: "why" }, "restart the pod to refresh"));
  return parts;
}
