// The application of a change of budgets to what is stored: the service trims segments, or counts
// what that would do, while the page waits for its end.
import { call, tenant } from "./api.js";
import { el, meter, setMeter } from "./dom.js";
import { bytes, keptMass, plural } from "./format.js";

const kPollMs = 150;
const kPath = "budgets/application";

// The application to what is stored that runs for the tenant, whoever has begun it; null if there
// is none. A count is not one.
export async function running() {
  const state = await call(kPath);
  return state.state === "running" && !state.dry_run ? state : null;
}

function effect(state) {
  const done = !state.dry_run;
  const mass = keptMass(state.kept_mass);
  const left = (names, why) => (names === "" ? null
    : el("p", {}, `Left as they are: segments of ${names.split("\n").join(", ")}, ${why}.`));
  return [
    el("p", {}, `Stored: ${done ? "trimmed" : "would trim"} `
      + `${plural(state.trimmed_segments, "segment")}, ${bytes(state.freed_bytes)} `
      + `${done ? "freed" : "to be freed"}, ${bytes(state.stored_bytes)} left of them.`),
    mass === "" ? null : el("p", {}, mass),
    left(state.loss, "whose budget is a loss"),
    left(state.apart, "where another budget is set"),
    state.refused_segments > 0 ? el("p", {}, `Not trimmed: `
      + `${plural(state.refused_segments, "segment")}; the first: ${state.refused}`) : null,
    state.state === "canceled" ? el("p", {}, "It was canceled before its end.") : null,
    state.error !== "" ? el("p", { class: "error" }, state.error) : null,
  ].filter((part) => part !== null);
}

// Follows an application of the tenant. `number`: as the answer to the change has it. If another
// one is there, it has been begun since: then it is neither shown nor canceled.
export class Application {
  constructor(number) {
    this.number = number;
    this.as = tenant();
    this.bar = meter("Progress", 0, "");
    this.cancel = el("button", { type: "button", onclick: () => this.stop() }, "Cancel");
    this.node = el("div", { class: "application" }, this.bar, this.cancel);
    this.ended = this.#follow();
  }

  // The service ends it before the next segment.
  async stop() {
    if (this.over) return;
    this.cancel.disabled = true;
    const { number, as } = this;
    await call(kPath, { method: "DELETE", query: { number }, as }).catch(() => {});
    await this.ended;
  }

  async #state() {
    const state = await call(kPath, { as: this.as });
    if (state.number !== this.number) throw new Error("Another change is being applied now.");
    return state;
  }

  async #follow() {
    try {
      let state = await this.#state();
      while (state.state === "running") {
        setMeter(this.bar, state.bytes > 0 ? state.done_bytes / state.bytes : 0,
                 `${bytes(state.done_bytes)} of ${bytes(state.bytes)}`);
        await new Promise((resume) => { setTimeout(resume, kPollMs); });
        state = await this.#state();
      }
      this.node.replaceChildren(...effect(state));
    } catch (error) {
      this.node.replaceChildren(el("p", { class: "error" }, error.message));
    }
    this.over = true;
  }
}
