// The budgets of puts: what is in force, changes with a dry run first, and revisions.
import { call, tenant } from "./api.js";
import { Application, running } from "./application.js";
import { $, el, say } from "./dom.js";
import { budget, bytes, keptMass, plural, recipe, time } from "./format.js";
import { Scope } from "./scope.js";

const kUser = "precis.user";   // the name that the operator has typed in this tab
const kNobody = "admin page";  // the user of a revision if there is none
const kRevisions = 50;
const kFields = ["keep", "limit", "recipe"];
const kTyped = [...kFields, "layers"];

const shown = (field, value) =>
  (value === null || value === "" || value === undefined ? "–"
    : field === "recipe" ? recipe(value) : budget(value));

// `changes`: [{scope, field, before, after}] as text.
function changeTable(changes) {
  if (changes.length === 0) return el("p", { class: "hint" }, "Nothing changes.");
  return el("div", { class: "scroll" }, el("table", { class: "changes" },
    el("thead", {}, el("tr", {}, ...["Scope", "Setting", "Now", "Then"].map(
      (name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...changes.map((each) => el("tr", {},
      el("td", {}, each.scope), el("td", {}, each.field), el("td", { class: "old" }, each.before),
      el("td", { class: "new" }, each.after))))));
}

// What a dry run tells about the next put.
function nextPut({ segment, tokens, keep, stored_bytes: stored, kept_mass: mass, note }) {
  const told = segment === null ? "" : `The next put like segment ${segment.slice(0, 12)} `
    + `(${plural(tokens, "token")}) keeps ${budget(keep)}, ${bytes(stored)}. ${keptMass(mass)} `;
  const rest = note === "" ? "" : `${note[0].toUpperCase()}${note.slice(1)}.`;
  return el("p", { class: "next-put" }, (told + rest).trim());
}

const user = () => $("your-name").value.trim() || kNobody;

export class Budgets {
  constructor(onError) {
    this.onError = onError;
    this.loaded = null;    // the scope whose budgets are shown, as the list of scopes has it
    this.revisions = [];
    this.newest = 0;
    this.tried = null;     // the change of the last dry run that succeeded
    this.rollback = null;  // {revision, newest} that the dialog asks about
    this.counting = null;  // the application of a dry run, which may have ended
    this.tries = 0;        // of dry runs
    this.scope = new Scope(() => this.load());
    $("budget-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#dryRun();
    });
    // Neither of these two changes what was tried.
    const apart = [$("apply-stored"), $("your-name")];
    $("budget-form").addEventListener("input", (event) => {
      if (!apart.includes(event.target)) this.#untry();
    });
    $("your-name").value = sessionStorage.getItem(kUser) ?? "";
    $("your-name").addEventListener("input", () =>
      sessionStorage.setItem(kUser, $("your-name").value.trim()));
    $("apply").addEventListener("click", () => this.#apply());
    $("rollback-cancel").addEventListener("click", () => $("rollback-dialog").close());
    $("rollback-dialog").addEventListener("close", () => this.counting?.stop());
    $("rollback-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#rollBack();
    });
  }

  setScopes(models, sessions) {
    const { models: before } = this.scope;
    const scope = $("scope").value;
    this.scope.offer(models, sessions);
    if (JSON.stringify(models) !== JSON.stringify(before)) this.#showRevisions();
    if ($("scope").value === scope) return;
    this.load().then(() => say($("budget-result"), "What the scope named is gone."));
  }

  // Shows the budgets of the page's tenant, and what is being applied already.
  async open() {
    const of = tenant();
    await this.load();
    const state = await running().catch(() => null);  // the poll of the page says why
    if (state === null || of !== tenant()) return;
    $("running").replaceChildren(
      el("p", {}, `Revision ${state.revision} is applied to what is stored.`),
      new Application(state.number).node);
  }

  // Forgets the former tenant.
  clear() {
    this.scope.offer([], []);
    this.#leave();
    this.#showRevisions();
    $("running").replaceChildren();
  }

  // Nothing that was typed for one scope or tenant may be sent for another.
  #leave() {
    this.loaded = null;
    this.#untry();
    for (const field of kTyped) $(field).value = "";
    $("dry-run").disabled = true;
  }

  // Clears the form, too.
  async load() {
    const scope = $("scope").value;
    const of = tenant();
    if (scope !== this.loaded) this.#leave();
    const query = this.scope.chosen;
    const [budgets, revisions] = await Promise.all([
      call("budgets", { query }),
      call("budgets/revisions", { query: { limit: kRevisions } }),
    ]).catch((error) => {
      this.onError(error);
      return [];
    });
    if (budgets === undefined || scope !== $("scope").value || of !== tenant()) return;
    this.loaded = scope;
    $("dry-run").disabled = false;
    this.newest = revisions.newest;
    this.revisions = revisions.revisions;
    this.layers = budgets.layers;
    this.own = budgets.layers[budgets.layers.length - 1];
    this.#showLayers(budgets);
    this.#showRevisions();
    for (const field of kFields) {
      $(field).value = shown(field, this.own[field]) === "–" ? "" : shown(field, this.own[field]);
      const wider = shown(field, this.#wider(field));
      $(field).placeholder = wider === "–" ? "none" : wider;
    }
    $("layers").value = "";
    $("layers").disabled = scope === "{}";
    this.#untry();
  }

  // Shows what others have changed, unless the operator has begun a change.
  async refresh() {
    const { newest } = await call("budgets/revisions", { query: { limit: 1 } });
    const failed = this.loaded !== $("scope").value;
    if (failed || (newest !== this.newest && Object.keys(this.#values()).length === 0)) {
      await this.load();
    }
  }

  // What applies if this scope sets nothing.
  #wider(field) {
    return this.layers.slice(0, -1).map((layer) => layer[field])
      .filter((value) => value !== null).pop() ?? null;
  }

  #showLayers({ layers, effective }) {
    const names = ["Scope", "Keep", "Limit", "Recipe", "Revision"];
    const row = (layer, name) => el("tr", { class: name ? "effective" : null },
      el("th", { scope: "row" }, name ?? layer.scope),
      ...["keep", "limit", "recipe"].map((field) => el("td", {}, shown(field, layer[field]))),
      el("td", { class: "number" }, layer.version > 0 ? layer.version : "–"));
    $("budget-table").tHead.replaceChildren(el("tr", {},
      ...names.map((name) => el("th", { scope: "col",
                                        class: name === "Revision" ? "number" : null }, name))));
    $("budget-table").tBodies[0].replaceChildren(row(effective, "in force"),
      ...[...layers].reverse().map((layer) => row(layer)));
  }

  #showRevisions() {
    if (this.revisions.length === 0) {
      $("revisions").replaceChildren(el("li", { class: "empty" }, "Nobody has changed a budget."));
      return;
    }
    $("revisions").replaceChildren(...this.revisions.map((each) => el("li", {},
      el("div", { class: "revision-head" },
        el("b", {}, `${each.number}`),
        el("span", {}, time(each.set_unix_ms)),
        el("span", { class: "hint" }, each.user ? `by ${each.user}` : ""),
        each.number === this.newest ? el("span", { class: "tag" }, "newest")
          : el("button", { type: "button", "aria-label": `Roll back to revision ${each.number}`,
                           onclick: () => this.#askRollback(each.number) }, "Roll back to this")),
      each.rollback_to !== null
        ? el("p", { class: "hint" }, `Back to revision ${each.rollback_to}`) : null,
      each.comment ? el("p", {}, each.comment) : null,
      el("ul", { class: "lines" }, ...this.#changesOf(each).map(
        (change) => el("li", {}, `${change.scope}: ${change.field} ${change.before} → `,
          el("b", {}, change.after)))))),
    el("li", {}, el("div", { class: "revision-head" }, el("span", {}, "Before the first revision"),
      el("button", { type: "button", "aria-label": "Roll back to before the first revision",
                     onclick: () => this.#askRollback(0) }, "Roll back to this"))));
  }

  #changesOf(revision) {
    return revision.changes.flatMap(({ scope, before, after }) => kFields
      .filter((field) => shown(field, before[field]) !== shown(field, after[field]))
      .map((field) => ({ scope: this.scope.name(scope), field,
                         before: shown(field, before[field]),
                         after: shown(field, after[field]) })));
  }

  // The fields that differ from what the scope sets; null unsets.
  #change() {
    return { user: user(), comment: $("comment").value.trim(), if_revision: this.newest,
             ...this.scope.chosen, ...this.#values() };
  }

  #values() {
    const values = {};
    for (const field of kFields) {
      const value = $(field).value.trim();
      const own = shown(field, this.own[field]);
      if (value !== (own === "–" ? "" : own)) values[field] = value === "" ? null : value;
    }
    const table = $("layers").value.trim();
    return table === "" ? values : { ...values, table };
  }

  #untry() {
    this.tried = null;
    ++this.tries;  // an answer to an earlier dry run comes too late
    $("apply").disabled = $("apply-stored").disabled = true;
    $("budget-result").replaceChildren();
  }

  // Asks for a dry run. Returns its answer, and what shows its effect on what is stored: null if no
  // trim can take what it sets.
  async #count(ask) {
    await this.counting?.stop();
    const answer = await ask({ dry_run: true, apply_to_stored: true });
    this.counting = answer.application > 0 ? new Application(answer.application) : null;
    return { answer, stored: this.counting?.node ?? null };
  }

  async #dryRun() {
    this.#untry();
    const change = this.#change();
    const fields = kFields.filter((field) => field in change);
    if (fields.length === 0 && !change.table) return say($("budget-result"), "Nothing changes.");
    const ask = (how) => call("budgets", { method: "PUT", body: { ...change, ...how } });
    const { tries } = this;
    let answer, stored;
    try {
      ({ answer, stored } = await this.#count(ask));
    } catch (error) {
      if (tries === this.tries) await this.#refused($("budget-result"), error);
      return;
    }
    if (tries !== this.tries) return;
    this.tried = change;
    $("apply").disabled = false;
    $("apply-stored").disabled = stored === null;
    const scope = this.scope.name(change);
    const changes = fields.map((field) => ({ scope, field,
      before: shown(field, this.own[field] ?? this.#wider(field)),
      after: change[field] ?? shown(field, this.#wider(field)) }));
    if (change.table) {
      changes.push({ scope, field: "layers and heads", before: "–", after: change.table });
    }
    $("budget-result").replaceChildren(
      el("p", {}, "The service would accept this. Nothing is changed yet."),
      changeTable(changes), nextPut(answer.next_put), stored ?? "");
  }

  async #apply() {
    if (this.tried === null) return;
    const stored = $("apply-stored").checked && !$("apply-stored").disabled;
    const change = { ...this.tried, user: user(), apply_to_stored: stored };
    const as = tenant();
    this.#untry();
    let answer;
    try {
      await this.counting?.stop();
      answer = await call("budgets", { method: "PUT", body: change, as });
    } catch (error) {
      return this.#refused($("budget-result"), error);
    }
    $("comment").value = "";
    await this.#applied("Applied", answer.application);
    $("keep").focus();
  }

  // `application`: its number; 0: nothing that is stored is trimmed.
  async #applied(how, application) {
    await this.load();
    $("apply-stored").checked = false;
    if (application > 0) $("running").replaceChildren();  // that one has ended
    $("budget-result").replaceChildren(
      el("p", { class: "good" }, `${how} as revision ${this.newest}.`),
      application > 0 ? new Application(application).node : "");
  }

  // After a conflict, the page shows what others have set, and the form what was typed.
  async #refused(node, error) {
    let again = "";
    if (error.code === "conflict") {
      const typed = kTyped.map((field) => $(field).value), { newest, loaded } = this;
      await this.load();
      if (loaded === null || loaded !== this.loaded) return;  // another scope was chosen meanwhile
      kTyped.forEach((field, index) => { $(field).value = typed[index]; });
      if (this.newest !== newest) {
        again = " Somebody else has changed the budgets. Look at what is in force now and try "
          + "again.";
      }
    }
    node.replaceChildren(el("p", { class: "error" }, error.message + again));
  }

  async #askRollback(revision) {
    this.rollback = { revision, newest: this.newest };
    say($("rollback-title"), revision === 0 ? "Roll back to before the first revision"
      : `Roll back to revision ${revision}`);
    say($("rollback-error"), "");
    $("rollback-comment").value = "";
    $("rollback-apply").disabled = true;
    $("rollback-changes").replaceChildren(el("p", { class: "hint" }, "Asking what would change"));
    $("rollback-dialog").showModal();
    $("rollback-stored").checked = false;
    try {
      const asked = this.rollback;
      const { answer, stored } = await this.#count((how) => this.#sendRollback(how, asked));
      if (this.rollback !== asked) return;
      const changes = this.#changesOf(answer);
      $("rollback-changes").replaceChildren(changeTable(changes), stored ?? "");
      $("rollback-apply").disabled = changes.length === 0;
    } catch (error) {
      $("rollback-changes").replaceChildren();
      say($("rollback-error"), error.message);
    }
  }

  #sendRollback(how, { revision, newest } = this.rollback) {
    return call(`budgets/revisions/${revision}/rollback`, { method: "POST", body: {
      user: user(), comment: $("rollback-comment").value.trim(), if_revision: newest, ...how } });
  }

  async #rollBack() {
    if ($("rollback-apply").disabled) return;
    $("rollback-apply").disabled = true;
    const stored = $("rollback-stored").checked;
    let answer;
    try {
      await this.counting?.stop();
      answer = await this.#sendRollback({ apply_to_stored: stored });
    } catch (error) {
      return this.#refused($("rollback-error"), error);
    }
    $("rollback-dialog").close();
    await this.#applied("Rolled back", answer.application);
    $("revisions").querySelector("button")?.focus();
  }
}
