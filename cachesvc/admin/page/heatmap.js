// The plan of one segment: how many entries each (layer, KV head) keeps.
import { $, el, rove, say } from "./dom.js";
import { ago, budget, bytes, count, percent, plural, recipeName, seconds, time } from "./format.js";
import { retentionForm } from "./retention.js";

function facts(segment, model) {
  const rows = [
    ["Segment", el("code", {}, segment.id)],
    ["Model", model],
    ["Tokens", `${count(segment.begin)} to ${count(segment.end)}, ` +
      `${count(segment.end - segment.begin)} in all`],
    ["Stored", `${bytes(segment.stored_bytes)}, ` +
      `${percent(segment.stored_bytes / Math.max(1, segment.original_bytes))} of the full KV`],
    ["Keep", budget(segment.keep) + (segment.trimmed ? `, trimmed to ${budget(segment.trimmed)}`
      : "")],
    ["Recipe", el("code", {}, recipeName(segment))],
    ["Used", segment.hits > 0
      ? `${plural(segment.hits, "hit")}, the last ${ago(segment.last_used_unix_ms)}` : "never"],
    ["Prefill", segment.prefill_seconds > 0 ? seconds(segment.prefill_seconds) : "unknown"],
    ["Created", time(segment.created_unix_ms)],
    ["Place", segment.out_of_service ? "damaged, not served"
      : segment.in_memory ? "memory and disk" : "disk"],
  ];
  return el("dl", { class: "facts" },
    ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// Shades go from the least count of the plan to the largest.
function grid(plan, tokens, readout) {
  const all = plan.flat();
  const least = Math.min(...all), most = Math.max(...all);
  const words = (value) => `${count(value)} entries, ${percent(value / Math.max(1, tokens))}` +
    " of the tokens";
  const usual = `${count(all.reduce((sum, each) => sum + each, 0))} entries in all. ` +
    "Point at a cell, or focus it and use the arrow keys.";
  const cells = [];
  const rows = plan.map((heads, layer) => el("tr", {},
    el("th", { scope: "row" }, layer),
    ...heads.map((value, head) => {
      const said = `Layer ${layer}, head ${head}: ${words(value)}`;
      const cell = el("td", { "aria-label": said });
      cell.style.setProperty("--heat", most > least ? (value - least) / (most - least) : 1);
      const show = () => say(readout, said);
      cell.addEventListener("pointerenter", show);
      cell.addEventListener("focus", show);
      cell.addEventListener("pointerleave", () => say(readout, usual));
      cell.addEventListener("blur", () => say(readout, usual));
      cells.push(cell);
      return cell;
    })));
  rove(cells, plan[0].length);
  say(readout, usual);
  const heads = el("tr", {}, el("td"), ...plan[0].map((_, head) => el("th", { scope: "col" },
    plan[0].length <= 16 || head % 8 === 0 ? head : "")));
  return [
    el("div", { class: "legend-bar" }, el("span", {}, words(least)),
      el("span", { class: "ramp", "aria-hidden": "true" }), el("span", {}, words(most))),
    el("div", { class: "heat-scroll" }, el("table", { class: "heatmap", role: "grid",
      "aria-label": "Entries by layer (rows) and KV head (columns)" },
    el("thead", {}, heads), el("tbody", {}, ...rows))),
  ];
}

// onChange: as of retentionForm().
export function showSegment(segment, model, onChange) {
  const readout = el("output", { class: "readout" });
  const plan = segment.plan ?? [];
  const map = plan.length > 0 && plan[0].length > 0
    ? [el("p", { class: "axis" }, "Rows are layers, columns are KV heads."),
       ...grid(plan, segment.end - segment.begin, readout), readout]
    : [el("p", { class: "empty" }, "The service gives no plan of this segment.")];
  $("segment-body").replaceChildren(el("div", { class: "plan" }, ...map),
    el("div", { class: "plan" }, facts(segment, model), retentionForm(segment, onChange)));
}

export function showSegmentError(text) {
  $("segment-body").replaceChildren(el("p", { class: "error", role: "alert" }, text));
}
