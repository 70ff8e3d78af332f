// Adds, changes and removes a tenant, and makes its tokens. A token is shown once and kept nowhere.
import { call, models } from "./api.js";
import { $, el, say } from "./dom.js";
import { bytes, exactBytes, parseBytes, plural, time } from "./format.js";

const whole = (text) => {
  if (!/^[0-9]*$/.test(text.trim())) throw new Error(`'${text}' is no whole number.`);
  return Number(text);
};
const kFields = [
  { id: "tenant-role", key: "role", shown: (value) => value, read: (text) => text },
  { id: "tenant-weight", key: "weight", shown: String, read: whole },
  { id: "tenant-disk", key: "max_disk_bytes", shown: exactBytes, read: parseBytes },
  { id: "tenant-memory", key: "max_memory_bytes", shown: exactBytes, read: parseBytes },
  { id: "tenant-puts", key: "max_puts", shown: String, read: whole },
  { id: "tenant-requests", key: "max_requests_per_s", shown: String, read: whole },
];

export class TenantDialog {
  // onChange: something was changed. onClose(row): null if a tenant was added.
  constructor({ onChange, onClose }) {
    this.onChange = onChange;
    this.row = null;  // of the tenant that is shown; null while one is added
    const on = (id, event, act) => $(id).addEventListener(event, act);
    on("tenant-change", "submit", (event) => {
      event.preventDefault();
      this.#try($("tenant-error"), () => (this.row === null ? this.#add() : this.#change()));
    });
    on("tenant-disk", "input", () => this.#mayTrim(false));
    on("tenant-rotate", "click", () => this.#try($("token-said"), () => this.#rotate(false)));
    on("tenant-drop", "click", () => this.#try($("token-said"), () => this.#rotate(true)));
    on("tenant-confirm", "input", () => this.#confirm());
    on("tenant-remove-form", "submit", (event) => {
      event.preventDefault();
      if (!$("tenant-remove").disabled) this.#try($("remove-error"), () => this.#remove());
    });
    on("tenant-close", "click", () => $("tenant-dialog").close());
    on("tenant-dialog", "close", () => onClose(this.row));
    on("copy-token", "click", () => this.#copy());
    on("new-token-close", "click", () => $("new-token-dialog").close());
    on("new-token-dialog", "close", () => { $("new-token").value = ""; });
  }

  add(admin) {
    this.admin = admin;
    this.#fill(null);
    say($("tenant-title"), "Add a tenant");
    $("tenant-name").value = $("tenant-salt").value = "";
    $("tenant-dialog").showModal();
    $("tenant-name").focus();
  }

  async show(admin, row) {
    this.admin = admin;
    this.#fill(row);
    say($("tenant-title"), row.name);
    $("tenant-dialog").showModal();
    try {
      const { rows } = await models(row.name);
      if (this.row !== row) return;
      rows.sort((a, b) => b.stored_bytes - a.stored_bytes);
      $("tenant-models").replaceChildren(...rows.map((model) => el("li", {},
        el("span", { class: "label", title: model.fingerprint }, model.name),
        el("span", { class: "number" }, bytes(model.stored_bytes)),
        el("span", { class: "hint" },
          `${plural(model.segments, "segment")}, ${plural(model.hits, "hit")}`))));
      if (rows.length === 0) $("tenant-models").append(el("li", { class: "hint" }, "None."));
    } catch (error) {
      $("tenant-models").replaceChildren(el("li", { class: "error" }, error.message));
    }
  }

  #fill(row) {
    this.row = row;
    const changes = row === null || !row.configured;
    for (const part of document.querySelectorAll("#tenant-dialog [data-for]")) {
      const { for: when } = part.dataset;
      part.hidden = when === "new" ? row !== null : when === "stored" ? row === null || !changes
        : when === "configured" ? changes : row === null;
    }
    for (const { id, key, shown } of kFields) {
      const value = row?.[key] ?? (key === "role" ? "writer" : key === "weight" ? 1 : 0);
      $(id).value = value === 0 ? "" : shown(value);
      $(id).disabled = !changes;
    }
    say($("tenant-save"), row === null ? "Add" : "Save");
    $("tenant-save").hidden = !changes;
    for (const id of ["tenant-error", "token-said", "remove-error", "tenant-saved"]) say($(id), "");
    $("tenant-models").replaceChildren();
    this.#mayTrim(false);
    if (row === null) return;
    this.#tokens();
    say($("purge-label"), `Also remove its ${plural(row.segments, "segment")}, ` +
      `${plural(row.sessions, "session")} and ${plural(row.models, "model")}`);
    say($("confirm-label"), `Type ${row.name} to remove it`);
    $("tenant-purge").checked = false;
    $("tenant-confirm").value = "";
    this.#confirm();
  }

  #tokens() {
    const { tokens, token_unix_ms: made } = this.row;
    say($("token-state"), tokens === 0 ? "It needs no token."
      : `${plural(tokens, "token")} valid${made > 0 ? `, the newest made ${time(made)}` : ""}.`);
    $("tenant-drop").disabled = tokens < 2;
  }

  #confirm() {
    $("tenant-remove").disabled = $("tenant-confirm").value !== this.row.name;
  }

  // Shows an error beside the control that caused it.
  async #try(node, act) {
    say(node, "");
    say($("tenant-saved"), "");
    try {
      await act();
    } catch (error) {
      node.className = "error";
      say(node, error.message);
      return;
    }
    this.onChange();
  }

  #path(rest = "") {
    return `tenants/${encodeURIComponent(this.row.name)}${rest}`;
  }

  // The fields that differ from those of `from`.
  #values(from) {
    const values = {};
    for (const { id, key, read } of kFields) {
      const value = read($(id).value);
      if (from === null || value !== from[key]) values[key] = value;
    }
    return values;
  }

  async #add() {
    const name = $("tenant-name").value.trim();
    const { token } = await call("tenants", { method: "POST", as: this.admin,
      body: { name, salt: $("tenant-salt").value, ...this.#values(null) } });
    $("tenant-dialog").close();
    this.#showToken(name, token);
  }

  async #change() {
    const values = this.#values(this.row);
    if (Object.keys(values).length === 0) return say($("tenant-saved"), "Nothing changes.");
    if ($("below-use").checked) values.below_use = true;
    try {
      const row = await call(this.#path(), { method: "PUT", as: this.admin, body: values });
      Object.assign(this.row, row);
    } catch (error) {
      // The disk limit is below what the tenant stores; the message says what would happen.
      if (error.code === "conflict" && error.message.includes("below_use")) this.#mayTrim(true);
      throw error;
    }
    this.#mayTrim(false);
    say($("tenant-saved"), "Saved; it applies from now on.");
  }

  // Asks whether segments may be trimmed and removed until the disk limit holds, or asks no more.
  #mayTrim(asks) {
    $("below-use-label").hidden = !asks;
    $("below-use").checked = false;
    if (asks) $("below-use").focus();
  }

  async #rotate(dropOld) {
    const issued = await call(this.#path("/token"), { method: "POST", as: this.admin,
                                                      body: { drop_old: dropOld } });
    Object.assign(this.row, issued.tenant);
    this.#tokens();
    $("token-said").className = "good";
    if (dropOld) say($("token-said"), "Only the newest token is valid now.");
    else this.#showToken(this.row.name, issued.token);
  }

  async #remove() {
    await call(this.#path(), { method: "DELETE", as: this.admin,
                               query: { purge: $("tenant-purge").checked } });
    $("tenant-dialog").close();
  }

  #showToken(name, token) {
    say($("new-token-title"), `The new token of ${name}`);
    $("new-token").value = token;
    say($("copied"), "");
    $("new-token-dialog").showModal();
    $("copy-token").focus();
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText($("new-token").value);
      say($("copied"), "Copied.");
    } catch {  // a browser gives no clipboard to a page without TLS on another host
      $("new-token").select();
      say($("copied"), "The browser does not allow it. The token is selected: copy it yourself.");
    }
  }
}
