// A map of stored bytes: groups of segments, and in a group its segments; of tenants, and in a
// tenant its models. A rectangle's area is its share of the bytes. What is drawn is bounded; the
// smallest are drawn together.
import { $, el, rove } from "./dom.js";
import { bytes, count, percent, plural } from "./format.js";

const kGroupsMax = 40, kSegmentsMax = 120, kPartsMax = 60, kListMax = 8, kHues = 8;
const kLabelHeight = 60;

// Rectangles for `sizes`, the largest first, that fill the box: rows along its shorter side, each
// as long as its rectangles get more square.
export function squarify(sizes, box) {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const out = [];
  let { x, y, w, h } = box;
  const scale = total > 0 ? (w * h) / total : 0;
  let at = 0;
  while (at < sizes.length) {
    const side = Math.min(w, h);
    let row = [], area = 0, worst = Infinity;
    while (at + row.length < sizes.length) {
      const next = sizes[at + row.length] * scale;
      const sum = area + next;
      const most = Math.max(...row, next), least = Math.min(...row, next);
      const square = (side * side) / (sum * sum);
      const ratio = Math.max(square * most, 1 / (square * least));
      if (row.length > 0 && ratio > worst) break;
      row.push(next);
      area = sum;
      worst = ratio;
    }
    const thick = side > 0 ? area / side : 0;
    let along = 0;
    for (const each of row) {
      const length = thick > 0 ? each / thick : 0;
      out.push(w >= h ? { x, y: y + along, w: thick, h: length }
        : { x: x + along, y, w: length, h: thick });
      along += length;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
    at += row.length;
  }
  return out;
}

// [{name, rows, segments, stored, original}], the largest first. groupOf: a segment's group.
export function groups(rows, groupOf) {
  const found = new Map();
  for (const row of rows) {
    const name = groupOf(row);
    const group = found.get(name) ?? { name, rows: [], segments: 0, stored: 0, original: 0 };
    group.rows.push(row);
    group.segments += 1;
    group.stored += row.stored_bytes;
    group.original += row.original_bytes;
    found.set(name, group);
  }
  return [...found.values()].sort((a, b) => b.stored - a.stored);
}

// The largest `most` items, and one that stands for all others.
function bounded(items, most, others) {
  if (items.length <= most) return items;
  const rest = items.slice(most);
  const stored = rest.reduce((sum, item) => sum + item.stored, 0);
  return [...items.slice(0, most), { name: others(rest.length), stored, rest: true }];
}

export class Treemap {
  constructor(onSegment) {
    this.onSegment = onSegment;
    this.groups = [];
    this.tiles = [];
    this.open = null;  // the name of the group that is shown
    new ResizeObserver(() => this.#place()).observe($("treemap"));
  }

  show(list) {
    this.groups = list;
    if (!list.some((group) => group.name === this.open)) this.open = null;
    this.draw();
  }

  // Opens a group as soon as it is shown.
  enter(name) {
    this.open = name;
  }

  #enter(name) {
    this.open = name;
    this.draw();
    ($("treemap").querySelector("button") ?? $("crumbs").querySelector("button"))?.focus();
  }

  draw() {
    const at = this.groups.findIndex((group) => group.name === this.open);
    const group = this.groups[at];
    const total = this.groups.reduce((sum, each) => sum + each.stored, 0);
    $("crumbs").replaceChildren(...(group === undefined
      ? [el("span", {}, `All: ${bytes(total)}`)]
      : [el("button", { type: "button", onclick: () => this.#enter(null) }, "All"),
         el("span", {}, `${group.name}: ${bytes(group.stored)} in ` +
           plural(group.segments, "segment"))]));
    this.items = group === undefined
      ? bounded(this.groups.map((each, index) => ({ ...each, hue: index % kHues,
          detail: plural(each.segments, "segment"), go: () => this.#enter(each.name) })),
        kGroupsMax, (n) => `${count(n)} other groups`)
      : bounded([...group.rows].sort((a, b) => b.stored_bytes - a.stored_bytes).map((row) => ({
          name: row.name ?? row.id.slice(0, 8), stored: row.stored_bytes, hue: at % kHues,
          detail: row.detail ?? `tokens ${row.begin}–${row.end}`,
          go: row.go ?? (() => this.onSegment(row.id)) })),
        kSegmentsMax,
        (n) => `${count(n)} other ${group.rows[0].name === undefined ? "segments" : "models"}`);
    this.items.sort((a, b) => b.stored - a.stored);
    this.#list(total);
    this.#tiles(group === undefined ? total : group.stored);
  }

  #tiles(total) {
    const map = $("treemap");
    const focused = map.contains(document.activeElement)
      ? this.tiles.indexOf(document.activeElement) : -1;
    if (total === 0) {
      map.replaceChildren(el("p", { class: "empty" },
        "Nothing is stored. The map shows what clients put."));
      this.tiles = [];
      return;
    }
    this.tiles = this.items.map((item) => el(item.rest ? "div" : "button", {
      type: item.rest ? null : "button",
      class: item.rest ? "tile rest" : `tile hue${item.hue}`,
      title: `${item.name}: ${bytes(item.stored)}`,
      onclick: item.go,
    }, el("span", { class: "name" }, item.name),
    el("span", { class: "size" }, `${bytes(item.stored)} · ${percent(item.stored / total)}`),
    item.detail ? el("span", { class: "more" }, item.detail) : null));
    map.replaceChildren(...this.tiles);
    this.#place();
    const stops = this.tiles.filter((tile) => tile.localName === "button");
    rove(stops, 1);
    if (focused >= 0) (stops[focused] ?? stops[0])?.focus();
  }

  #place() {
    if (this.tiles.length === 0) return;
    const map = $("treemap");
    const box = { x: 0, y: 0, w: map.clientWidth, h: map.clientHeight };
    squarify(this.items.map((item) => item.stored), box).forEach((place, index) => {
      const { style, dataset } = this.tiles[index];
      style.left = `${place.x}px`;
      style.top = `${place.y}px`;
      style.width = `${Math.max(0, place.w - 2)}px`;
      style.height = `${Math.max(0, place.h - 2)}px`;
      dataset.fits = place.w > 84 && place.h > 62 ? "all"
        : place.w > 60 && place.h > 24 ? "name" : "none";
      this.#parts(index, place);
    });
  }

  // Faint outlines of a group's segments, below its label.
  #parts(index, place) {
    const tile = this.tiles[index], { rows } = this.items[index];
    for (const part of tile.querySelectorAll(".part")) part.remove();
    if (rows === undefined || place.h < 2 * kLabelHeight || tile.dataset.fits !== "all") return;
    const list = rows.map((row) => ({ stored: row.stored_bytes })).sort(
      (a, b) => b.stored - a.stored);
    const sizes = bounded(list, kPartsMax, () => "").map((each) => each.stored);
    const box = { x: 0, y: kLabelHeight, w: place.w - 2, h: place.h - kLabelHeight - 2 };
    tile.append(...squarify(sizes.sort((a, b) => b - a), box).map((part) => {
      const node = el("span", { class: "part", "aria-hidden": "true" });
      Object.assign(node.style, { left: `${part.x}px`, top: `${part.y}px`, width: `${part.w}px`,
                                  height: `${part.h}px` });
      return node;
    }));
  }

  #list(total) {
    const rows = this.groups.slice(0, kListMax).map((group, index) => {
      const bar = el("span", { class: `bar hue${index % kHues}`, "aria-hidden": "true" });
      bar.style.width = `${total > 0 ? (100 * group.stored) / total : 0}%`;
      return el("li", {}, el("span", { class: "label", title: group.name }, group.name),
        el("span", { class: "number" }, bytes(group.stored)),
        el("span", { class: "track", "aria-hidden": "true" }, bar),
        el("span", { class: "hint" }, `${plural(group.segments, "segment")}, ` +
          `${percent(group.original > 0 ? group.stored / group.original : 0)} of the full KV`));
    });
    const more = this.groups.length - rows.length;
    if (more > 0) rows.push(el("li", { class: "hint" }, `and ${count(more)} more`));
    $("treemap-list").replaceChildren(...rows);
  }
}
