// The application of a change of budgets to what is stored: the service trims segments, or counts
// what that would do, while the page waits for its end.
import { call } from "./api.js";
import { el, meter, setMeter } from "./dom.js";
import { bytes, percent, plural } from "./format.js";

const kPollMs = 150;
const kPath = "budgets/application";

// Whether a trim can take what the change sets.
export function canApply({ keep, limit }) {
  const value = keep === undefined ? limit : keep;
  return value !== undefined && value !== null && !value.startsWith("quality");
}

function effect(state) {
  const done = !state.dry_run;
  const mass = state.kept_mass;
  const lowest = mass.indexOf(Math.min(...mass));
  const mean = mass.reduce((sum, share) => sum + share, 0) / mass.length;
  const left = (names, why) => (names === "" ? null
    : el("p", {}, `Left as they are: segments of ${names.split("\n").join(", ")}, ${why}.`));
  return [
    el("p", {}, `Stored: ${done ? "trimmed" : "would trim"} `
      + `${plural(state.trimmed_segments, "segment")}, ${bytes(state.freed_bytes)} `
      + `${done ? "freed" : "to be freed"}, ${bytes(state.stored_bytes)} left of them.`),
    mass.length > 0 ? el("p", {}, `Score mass kept: ${percent(mean)} on average, `
      + `${percent(mass[lowest])} in layer ${lowest}.`) : null,
    left(state.quality, "whose budget is a quality target"),
    left(state.apart, "where another budget is set"),
    state.refused_segments > 0 ? el("p", {}, `Not trimmed: `
      + `${plural(state.refused_segments, "segment")}; the first: ${state.refused}`) : null,
    state.state === "canceled" ? el("p", {}, "It was canceled before its end.") : null,
    state.error !== "" ? el("p", { class: "error" }, state.error) : null,
  ].filter((part) => part !== null);
}

// Follows the tenant's application that has begun, a dry run or not. If another kind is there, an
// operator has begun it since: then it is neither shown nor canceled.
export class Application {
  constructor(dryRun) {
    this.bar = meter("Progress", 0, "");
    this.cancel = el("button", { type: "button", onclick: () => this.stop() }, "Cancel");
    this.node = el("div", { class: "application" }, this.bar, this.cancel);
    const first = call(kPath).then((state) => {
      if (state.dry_run !== dryRun) throw new Error("Another change is being applied now.");
      return state;
    });
    this.number = first.then((state) => state.number, () => 0);
    this.ended = this.#follow(first);
  }

  // The service ends it before the next segment.
  async stop() {
    if (this.over) return;
    this.cancel.disabled = true;
    const number = await this.number;
    if (number > 0) {
      await call(kPath, { method: "DELETE", query: { number } }).catch(() => {});
    }
    await this.ended;
  }

  async #follow(first) {
    try {
      let state = await first;
      const { number } = state;
      while (state.state === "running") {
        setMeter(this.bar, state.bytes > 0 ? state.done_bytes / state.bytes : 0,
                 `${bytes(state.done_bytes)} of ${bytes(state.bytes)}`);
        await new Promise((resume) => { setTimeout(resume, kPollMs); });
        state = await call(kPath);
        if (state.number !== number) throw new Error("Another change is being applied now.");
      }
      this.node.replaceChildren(...effect(state));
    } catch (error) {
      this.node.replaceChildren(el("p", { class: "error" }, error.message));
    }
    this.over = true;
  }
}
