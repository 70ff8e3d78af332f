// The tenants of the service. Every port tells what they store and do; roles, limits and tokens are
// shown and changed on behalf of an admin, and only on a port with a token.
import * as api from "./api.js";
import { $, el, meter, rove, say } from "./dom.js";
import { bytes, count, percent, perSecond } from "./format.js";
import { readTenants } from "./metrics.js";
import { TenantDialog } from "./tenant_dialog.js";

const kAdmin = "precis.admin";  // the tenant on whose behalf this tab manages
const kShown = 200;
const kWithoutToken = "This port has no token, so it does not manage tenants: set " +
  "admin_token_file, or use precisctl tenant. Roles and limits are not shown either.";

// key: what the column shows; `managed` columns need the answers for an admin.
const kColumns = [
  { name: "Tenant" },
  { name: "Role", managed: true, cell: (row) => row.role },
  { name: "Weight", managed: true, kind: "number", cell: (row) => count(row.weight) },
  { name: "Disk", kind: "use",
    cell: (row) => use(`Disk of ${row.name}`, row.stored, row.max_disk_bytes, bytes) },
  { name: "Memory", managed: true, kind: "use",
    cell: (row) => use(`Memory of ${row.name}`, row.memory_bytes, row.max_memory_bytes,
                       bytes) },
  { name: "Puts open", managed: true, kind: "use",
    cell: (row) => use(`Open puts of ${row.name}`, row.open_puts, row.max_puts, count) },
  { name: "Of full KV", kind: "number",
    cell: (row) => (row.original > 0 ? percent(row.stored / row.original) : "–") },
  { name: "Segments", kind: "number", cell: (row) => count(row.segments) },
  { name: "Lookups", kind: "number", cell: (row) => perSecond(row.rates.lookups) },
  { name: "Hits", kind: "number", cell: (row) => perSecond(row.rates.hits) },
  { name: "Gets", kind: "number", cell: (row) => perSecond(row.rates.gets) },
  { name: "Puts", kind: "number", cell: (row) => perSecond(row.rates.puts) },
  { name: "Request limit", managed: true, kind: "number",
    cell: (row) => (row.max_requests_per_s > 0 ? perSecond(row.max_requests_per_s) : "none") },
  { name: "Clients", managed: true, kind: "number", cell: (row) => count(row.connections) },
];

// What is used; a bar if there is a limit.
function use(name, used, limit, format) {
  if (!(limit > 0)) return el("span", {}, format(used));
  const text = `${format(used)} of ${format(limit)}`;
  return el("div", {}, el("span", {}, text), meter(name, used / limit, text));
}

export class Tenants {
  // onTenant: the page shall show another tenant. onChange: the stored bytes were read.
  constructor({ onTenant, onChange }) {
    Object.assign(this, { onTenant, onChange, rows: [], last: null, managed: new Map(),
                          refused: "" });
    this.dialog = new TenantDialog({ onChange: () => this.load(),
      // The button that had the focus may have been replaced.
      onClose: (row) => (this.#button(`manage ${row?.name}`) ?? $("add-tenant")).focus() });
    $("manage-form").addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(kAdmin, $("manage-as").value);
      this.refused = "";
      this.load();
    });
    $("add-tenant").addEventListener("click", () => this.dialog.add(this.#admin()));
  }

  #admin() {
    return sessionStorage.getItem(kAdmin);
  }

  async load() {
    let why = "";
    try {
      const found = await readTenants();
      const at = performance.now();
      const seconds = this.last === null ? 0 : (at - this.last.at) / 1000;
      this.rows = [...found.values()].map((row) => ({ ...row,
        rates: this.#rates(row, this.last?.found.get(row.name), seconds) }));
      this.last = { at, found };
      why = await this.#manage();
      this.#shown(why);
      this.onChange();
    } catch (error) {
      say($("tenants-note"), `The tenants could not be read: ${error.message}`);
    }
  }

  #rates(now, before, seconds) {
    const by = (key) => (before === undefined || seconds <= 0 ? 0
      : Math.max(0, now[key] - before[key]) / seconds);
    return { lookups: by("lookups"), hits: by("hits"), gets: by("gets"), puts: by("puts") };
  }

  // Adds what only an admin is told. Says why it is not told.
  async #manage() {
    this.managed.clear();
    if (!api.mayManage()) return kWithoutToken;
    if (this.#admin() === null) {
      return this.refused ||
        "Choose a tenant with the role admin, on whose behalf to see and change limits.";
    }
    try {
      const { rows } = await api.tenants(this.#admin());
      for (const row of rows) this.managed.set(row.name, row);
    } catch (error) {
      sessionStorage.removeItem(kAdmin);
      this.refused = error.message;
      return error.message;
    }
    this.rows = [...this.managed.values()].map((row) => {
      const { lookups = 0, hits = 0, gets = 0, puts = 0 } = this.#measured(row.name)?.rates ?? {};
      return { ...row, stored: row.stored_bytes, original: row.original_bytes,
               open_puts: row.puts, rates: { lookups, hits, gets, puts } };
    });
    return "";
  }

  #measured(name) {
    return this.rows.find((row) => row.name === name);
  }

  #shown(why) {
    this.rows.sort((a, b) => b.stored - a.stored || (a.name < b.name ? -1 : 1));
    const managing = this.managed.size > 0;
    say($("tenants-note"), why || (this.rows.length > kShown
      ? `The ${count(kShown)} that store most, of ${count(this.rows.length)}.` : ""));
    $("manage-form").hidden = !api.mayManage() || managing;
    $("add-tenant").hidden = !managing;
    this.#choices(this.rows.map(({ name }) => name).sort());
    this.#draw(kColumns.filter((column) => managing || !column.managed), managing);
  }

  // The names to choose from; the page's tenant is the first choice.
  #choices(names) {
    const state = [api.tenant(), ...names].join("\n");
    if (state === this.choices) return;
    this.choices = state;
    $("tenant-names").replaceChildren(...names.map((value) => el("option", { value })));
    $("manage-as").replaceChildren(...names.map((name) => el("option", {
      value: name, selected: name === api.tenant() }, name)));
  }

  #draw(columns, managing) {
    const focused = document.activeElement?.closest?.("#tenant-table button")?.dataset.key;
    const table = $("tenant-table");
    table.tHead.replaceChildren(el("tr", {}, ...columns.map(({ name, kind }) =>
      el("th", { scope: "col", class: kind }, name)),
    managing ? el("th", { scope: "col", class: "act" },
      el("span", { class: "hidden" }, "Manage")) : null));
    table.tBodies[0].replaceChildren(...this.rows.slice(0, kShown).map((row) =>
      el("tr", { "data-chosen": row.name === api.tenant() },
        el("th", { scope: "row" }, el("button", { type: "button", class: "link",
          "data-key": `show ${row.name}`, title: "Show this tenant on the page",
          onclick: () => this.onTenant(row.name) }, row.name)),
        ...columns.slice(1).map(({ cell, kind }) => el("td", { class: kind }, cell(row))),
        managing ? el("td", { class: "act" }, el("button", { type: "button",
          "data-key": `manage ${row.name}`, "aria-label": `Manage ${row.name}`,
          onclick: () => this.dialog.show(this.#admin(), row) }, "Manage")) : null)));
    const buttons = [...table.tBodies[0].querySelectorAll("button")];
    rove(buttons, managing ? 2 : 1);
    this.#button(focused)?.focus({ preventScroll: true });
  }

  #button(key) {
    return [...$("tenant-table").querySelectorAll("button")]
      .find((button) => button.dataset.key === key);
  }
}
