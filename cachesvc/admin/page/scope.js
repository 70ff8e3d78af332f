// The choice of a scope of budgets: all models, a model, or a session.
import { $, el } from "./dom.js";

const kSessions = 200;  // the most that the list has, those last used first

const option = (scope, label) => el("option", { value: JSON.stringify(scope) }, label);

export class Scope {
  constructor(onChange) {
    this.models = [];
    this.listed = "";
    $("scope").append(option({}, "all models"));
    $("scope").addEventListener("change", onChange);
  }

  // As the API takes it: {}, {model} or {session}.
  get chosen() { return JSON.parse($("scope").value); }

  // `models`: [{fingerprint, label}]; `sessions`: rows of the API. What is chosen stays in the list
  // while it is there; otherwise all models are chosen.
  offer(models, sessions) {
    const { session } = this.chosen;
    const last = [...sessions].sort((a, b) => b.updated_unix_ms - a.updated_unix_ms);
    const names = last.slice(0, kSessions).concat(last.filter(({ name }) => name === session))
      .map(({ name }) => name);
    const sorted = [...new Set(names)].sort();
    const listed = JSON.stringify([models, sorted]);
    if (listed === this.listed) return;
    this.listed = listed;
    this.models = models;
    const chosen = $("scope").value;
    const group = el("optgroup", { label: "Sessions" },
      ...sorted.map((name) => option({ session: name }, name)));
    $("scope").replaceChildren(option({}, "all models"),
      ...models.map(({ fingerprint, label }) => option({ model: fingerprint }, label)),
      sorted.length > 0 ? group : "");
    const still = [...$("scope").options].some(({ value }) => value === chosen);
    $("scope").value = still ? chosen : "{}";
  }

  name({ model, session }) {
    if (session) return `session ${session}`;
    if (!model) return "all models";
    return this.models.find((each) => each.fingerprint === model)?.label ?? model.slice(0, 12);
  }
}
