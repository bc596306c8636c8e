// The keyboard: one tile at a time is in the order of Tab, arrows go from tile to tile, / goes to the filter.

export class Keys {
  constructor(main, filter) {
    this.main = main;
    this.filter = filter;
    this.current = null;
    main.addEventListener("keydown", (event) => this.walk(event));
    main.addEventListener("focusin", (event) => {
      if (event.target.classList.contains("tile")) this.choose(event.target);
    });
    document.addEventListener("keydown", (event) => this.jump(event));
    filter.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "ArrowDown") this.enter(event);
    });
  }

  tiles() {
    return [...this.main.querySelectorAll(".tile")].filter((tile) => tile.offsetParent !== null);
  }

  // Keep exactly one tile in the order of Tab, the one that had it if it is still there.
  settle(lostKey) {
    const tiles = this.tiles();
    const wanted = tiles.find((tile) => tile.dataset.key === this.current) ?? tiles[0];
    for (const tile of this.main.querySelectorAll(".tile[tabindex='0']")) tile.tabIndex = -1;
    if (wanted) wanted.tabIndex = 0;
    if (lostKey && wanted) wanted.focus({ preventScroll: true });
  }

  choose(tile) {
    this.current = tile.dataset.key;
    for (const other of this.main.querySelectorAll(".tile[tabindex='0']")) other.tabIndex = -1;
    tile.tabIndex = 0;
  }

  jump(event) {
    const isTyping = event.target.matches?.("input, textarea, select");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      this.filter.focus();
      this.filter.select();
    } else if (event.key === "Escape" && event.target === this.filter) {
      event.preventDefault();
      if (this.filter.value) {
        this.filter.value = "";
        this.filter.dispatchEvent(new Event("input"));
      }
      this.enter(event);
    }
  }

  enter(event) {
    const tile = this.tiles().find((one) => one.tabIndex === 0) ?? this.tiles()[0];
    if (!tile) return;
    event.preventDefault();
    tile.focus();
  }

  walk(event) {
    if (!event.target.classList.contains("tile") || event.ctrlKey || event.altKey || event.metaKey) return;
    const next = this.nextOf(event.target, event.key);
    if (next === undefined) return;
    event.preventDefault();
    if (next) {
      next.focus();
      next.scrollIntoView({ block: "nearest" });
    }
  }

  nextOf(tile, key) {
    const tiles = this.tiles();
    const at = tiles.indexOf(tile);
    switch (key) {
      case "ArrowRight": return tiles[at + 1] ?? null;
      case "ArrowLeft": return tiles[at - 1] ?? null;
      case "Home": return tiles[0];
      case "End": return tiles.at(-1);
      case "ArrowDown": return nearest(tile, tiles.slice(at + 1), 1);
      case "ArrowUp": return nearest(tile, tiles.slice(0, at).reverse(), -1);
      default: return undefined;
    }
  }
}

// The tile in the next row, in the direction of `sign`, whose middle is nearest.
function nearest(tile, candidates, sign) {
  const from = tile.getBoundingClientRect();
  const middle = (box) => (box.left + box.right) / 2;
  let row = null;
  let best = null;
  for (const candidate of candidates) {
    const box = candidate.getBoundingClientRect();
    if (sign * (box.top - from.top) <= 4) continue;
    row ??= box.top;
    if (Math.abs(box.top - row) > 4) break;
    const distance = Math.abs(middle(box) - middle(from));
    if (!best || distance < best.distance) best = { candidate, distance };
  }
  return best?.candidate ?? null;
}
