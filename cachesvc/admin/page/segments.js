// The table of segments: sorted, filtered, and shown page by page.
import { $, el, rove, say } from "./dom.js";
import { ago, budget, bytes, count, duration, percent, recipeName, time } from "./format.js";

const kRowsPerPage = 50;
const kId = /^[0-9a-f]{32}$/;

// Budgets of one kind by their value.
const budgetKey = ({ kind, value = 0 }) => `${kind} ${value.toFixed(6).padStart(24, "0")}`;

// key: what the column is sorted by.
const kColumns = [
  { name: "Segment", key: (row) => row.id, cell: (row) => row.id.slice(0, 12), kind: "id" },
  { name: "Model", key: (row) => row.modelName, cell: (row) => row.modelName, kind: "name" },
  { name: "Session", key: (row) => row.sessionName, cell: (row) => row.sessionName, kind: "name" },
  { name: "Tokens", key: (row) => row.end - row.begin,
    cell: (row) => count(row.end - row.begin), kind: "number" },
  { name: "Stored", key: (row) => row.stored_bytes, cell: (row) => bytes(row.stored_bytes),
    kind: "number" },
  { name: "Of full KV", key: (row) => row.stored_bytes / Math.max(1, row.original_bytes),
    cell: (row) => percent(row.stored_bytes / Math.max(1, row.original_bytes)), kind: "number" },
  { name: "Keep", key: (row) => budgetKey(row.trimmed ?? row.keep),
    cell: (row) => budget(row.trimmed ?? row.keep), kind: "number" },
  { name: "Hits", key: (row) => row.hits, cell: (row) => count(row.hits), kind: "number" },
  { name: "Last use", key: (row) => row.last_used_unix_ms,
    cell: (row) => ago(row.last_used_unix_ms, true), kind: "number" },
  { name: "Priority", key: (row) => row.priority, cell: (row) => count(row.priority),
    kind: "number" },
  { name: "TTL", key: (row) => row.ttl_seconds || Infinity,
    cell: (row) => (row.ttl_seconds > 0 ? duration(row.ttl_seconds) : "–"), kind: "number" },
  { name: "Recipe", key: recipeName, cell: recipeName, kind: "name" },
  { name: "Created", key: (row) => row.created_unix_ms, cell: (row) => time(row.created_unix_ms),
    kind: "number" },
];

export class SegmentTable {
  // onSegment: the operator chooses one. find: the row of any stored segment by its id.
  constructor({ onSegment, find }) {
    Object.assign(this, { onSegment, find });
    this.rows = [];
    this.found = null;  // a row that is not among `rows`, and whose id is the filter
    this.why = "";      // there is none
    this.finds = 0;     // an answer to an earlier one comes too late
    this.note = "";
    this.filter = "";
    this.sort = { column: kColumns.findIndex(({ name }) => name === "Stored"), down: true };
    this.page = 0;
    this.chosen = null;
    this.heads = kColumns.map(({ name, kind }, index) => el("th", { scope: "col", class: kind },
      el("button", { type: "button", onclick: () => this.#sortBy(index) }, name)));
    $("segment-table").tHead.rows[0].append(...this.heads);
    $("filter").addEventListener("input", () => {
      this.filter = $("filter").value.trim().toLowerCase();
      this.page = 0;
      this.#forget();
      this.#arrange();
      if (this.shown.length === 0 && kId.test(this.filter)) this.#find(this.filter);
    });
    const turn = (id, to) => $(id).addEventListener("click", () => this.#turn(to()));
    turn("first-page", () => 0);
    turn("previous-page", () => this.page - 1);
    turn("next-page", () => this.page + 1);
    turn("last-page", () => Infinity);
    this.#arrange();
  }

  show(rows, note) {
    this.rows = rows;
    this.note = note;
    this.#arrange();
  }

  // Forgets the former tenant.
  clear() {
    this.#forget();
    this.show([], "");
    this.choose(null);
  }

  #forget() {
    Object.assign(this, { found: null, why: "", finds: this.finds + 1 });
  }

  // The list has only the newest segments.
  async #find(id) {
    const { finds } = this;
    let found = null, why = "";
    try {
      found = await this.find(id);
    } catch (error) {
      why = error.message;
    }
    if (finds !== this.finds) return;
    Object.assign(this, { found, why });
    this.#arrange();
  }

  choose(id) {
    this.chosen = id;
    for (const row of $("segment-table").tBodies[0].rows) {
      row.toggleAttribute("data-chosen", row.dataset.id === id);
    }
  }

  #sortBy(column) {
    const down = this.sort.column === column ? !this.sort.down : kColumns[column].kind === "number";
    this.sort = { column, down };
    this.page = 0;
    this.#arrange();
  }

  #turn(page) {
    this.page = page;
    this.#draw();
  }

  #arrange() {
    const { column, down } = this.sort;
    const { key } = kColumns[column];
    const has = (text) => text.toLowerCase().includes(this.filter);
    this.shown = this.rows.filter((row) => this.filter === "" || has(row.id) ||
      has(row.modelName) || has(recipeName(row)) || has(row.sessionName));
    if (this.shown.length === 0 && this.found !== null) this.shown.push(this.found);
    const keys = new Map(this.shown.map((row) => [row, key(row)]));
    const before = (a, b) => (keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0);
    this.shown.sort((a, b) => (down ? before(b, a) : before(a, b)) || (a.id < b.id ? -1 : 1));
    this.heads.forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.#draw();
  }

  #draw() {
    const pages = Math.max(1, Math.ceil(this.shown.length / kRowsPerPage));
    this.page = Math.max(0, Math.min(pages - 1, this.page));
    const begin = this.page * kRowsPerPage;
    const part = this.shown.slice(begin, begin + kRowsPerPage);
    const focused = document.activeElement?.closest?.("tr[data-id]")?.dataset.id;
    const body = $("segment-table").tBodies[0];
    body.replaceChildren(...part.map((row) => this.#row(row)));
    if (part.length === 0) {
      body.append(el("tr", {}, el("td", { colspan: kColumns.length, class: "empty" },
        this.why || (this.rows.length === 0 ? "No segments are stored."
          : "No segment matches the filter."))));
    }
    rove([...body.querySelectorAll("button")], 1);
    if (focused) body.querySelector(`tr[data-id="${CSS.escape(focused)}"] button`)?.focus();
    $("first-page").disabled = $("previous-page").disabled = this.page === 0;
    $("last-page").disabled = $("next-page").disabled = this.page === pages - 1;
    say($("page-place"), this.shown.length === 0 ? "No segments"
      : `${count(begin + 1)}–${count(begin + part.length)} of ${count(this.shown.length)}`);
    say($("segments-note"), this.note);
  }

  #row(row) {
    const cells = kColumns.map(({ cell, kind }, index) => {
      const text = cell(row);
      if (index > 0) return el("td", { class: kind, title: kind === "name" ? text : null }, text);
      return el("th", { scope: "row", class: kind }, el("button", {
        type: "button", class: "link", title: row.id, "aria-label": `Segment ${text}`,
        onclick: () => this.onSegment(row.id) }, text));
    });
    return el("tr", { "data-id": row.id, "data-chosen": row.id === this.chosen,
                      "data-bad": row.out_of_service }, ...cells);
  }
}
