// Line charts over the ring: axes with units, a legend with the newest values, and a cursor that
// the pointer or the arrow keys move.
import { el, say, svg } from "./dom.js";
import { duration } from "./format.js";

const kHeight = 190;
const kMargin = { left: 66, right: 12, top: 10, bottom: 24 };
const kSecondsMin = 60;

// The least of 1, 2, 2.5, 5 times a power of `base` that is at least `value`.
function niceStep(value, base) {
  const power = base ** Math.floor(Math.log(value) / Math.log(base));
  const steps = base === 10 ? [1, 2, 2.5, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return power * steps.find((step) => step * power >= value * 0.9999);
}

function ticksOf(most, base) {
  const step = niceStep(most / 4, base);
  const ticks = [];
  for (let at = 0; at < most + step * 0.999; at += step) ticks.push(at);
  return ticks;
}

function timeTicks(seconds) {
  const steps = [15, 30, 60, 120, 300, 600];
  const step = steps.find((each) => seconds / each <= 4) ?? 600;
  const ticks = [];
  for (let at = 0; at <= seconds; at += step) ticks.push(at);
  return ticks;
}

export class Chart {
  // series: [{key, name}]. most: the axis' end if it is fixed. base: 1024 for bytes.
  constructor({ title, series, format, most = null, base = 10, least = 1 }) {
    Object.assign(this, { title, series, format, most, base, least, points: [], cursor: null });
    this.values = series.map(() => el("b"));
    this.when = el("span", { class: "when" });
    this.live = el("output", { class: "hidden" });  // says where arrow keys moved
    this.plot = svg("svg", { height: kHeight, role: "img", tabindex: 0, class: "plot" });
    this.node = el("figure", { class: "card chart" },
      el("figcaption", {}, el("h3", {}, title), el("div", { class: "legend" },
        ...series.map((each, index) => el("span", { class: `key s${index}` },
          el("i", { "aria-hidden": "true" }), `${each.name} `, this.values[index])), this.when)),
      this.plot, this.live);
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerleave", () => this.#moveTo(null));
    this.plot.addEventListener("blur", () => this.#moveTo(null));
    this.plot.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  show(points) {
    this.points = points;
    this.draw();
  }

  draw() {
    const width = Math.max(120, Math.floor(this.node.clientWidth) - 24);
    const { points } = this;
    const end = points.length > 0 ? points[points.length - 1].at : 0;
    const seconds = Math.max(kSecondsMin, points.length > 0 ? (end - points[0].at) / 1000 : 0);
    const values = points.flatMap((point) => this.series.map(({ key }) => point[key] ?? 0));
    const ticks = ticksOf(this.most ?? Math.max(this.least, ...values), this.base);
    const top = this.most ?? ticks[ticks.length - 1];
    const right = width - kMargin.right, bottom = kHeight - kMargin.bottom;
    this.x = (at) => right - ((end - at) / 1000 / seconds) * (right - kMargin.left);
    const y = (value) => bottom - (value / top) * (bottom - kMargin.top);
    const parts = [];
    for (const tick of ticks.filter((each) => each <= top * 1.0001)) {
      parts.push(svg("line", { class: "grid", x1: kMargin.left, x2: right, y1: y(tick),
                               y2: y(tick) }),
        svg("text", { class: "tick", x: kMargin.left - 8, y: y(tick) + 4, "text-anchor": "end" },
          this.format(tick).replace(/\.0+ /, " ")));
    }
    for (const tick of timeTicks(seconds)) {
      const at = this.x(end - tick * 1000);
      parts.push(svg("text", { class: "tick", x: at, y: kHeight - 6,
                               "text-anchor": tick === 0 ? "end" : "middle" },
        tick === 0 ? "now" : `−${duration(tick)}`));
    }
    this.series.forEach(({ key }, index) => {
      parts.push(svg("path", { class: `line s${index}`, d: this.#path(key, y) }));
      const last = points[points.length - 1]?.[key];
      if (last !== undefined && last !== null) {
        parts.push(svg("circle", { class: `dot s${index}`, cx: right, cy: y(last), r: 3 }));
      }
    });
    const shown = this.cursor === null ? null : points[this.cursor];
    if (shown) {
      const at = this.x(shown.at);
      parts.push(svg("line", { class: "cursor", x1: at, x2: at, y1: kMargin.top, y2: bottom }));
    }
    this.plot.setAttribute("width", width);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${kHeight}`);
    this.plot.replaceChildren(...parts);
    this.#name(shown ?? points[points.length - 1], end);
  }

  #path(key, y) {
    let path = "", pen = "M";
    for (const point of this.points) {
      const value = point[key];
      if (value === null || value === undefined) {
        pen = "M";
        continue;
      }
      // A value that stands alone is a dot: a line of no length with a round end.
      path += `${pen}${this.x(point.at).toFixed(1)} ${y(value).toFixed(1)}`;
      path += pen === "M" ? "h0" : "";
      pen = "L";
    }
    return path;
  }

  #name(point, end) {
    const text = (value) => (value === null || value === undefined ? "–" : this.format(value));
    this.series.forEach(({ key }, index) => say(this.values[index], text(point?.[key])));
    const when = point && point.at !== end ? `${duration((end - point.at) / 1000)} ago` : "";
    say(this.when, when);
    const said = this.series.map(({ key, name }) => `${name} ${text(point?.[key])}`);
    this.plot.setAttribute("aria-label", `${this.title}: ${said.join(", ")} ${when || "now"}`);
  }

  #moveTo(index) {
    if (index === this.cursor) return;
    this.cursor = index;
    this.draw();
  }

  #point(event) {
    if (this.points.length === 0) return;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    let best = 0;
    this.points.forEach((point, index) => {
      const near = Math.abs(this.x(point.at) - x);
      if (near < Math.abs(this.x(this.points[best].at) - x)) best = index;
    });
    this.#moveTo(best);
  }

  #key(event) {
    const last = this.points.length - 1;
    const from = this.cursor ?? last;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#moveTo(Math.max(0, Math.min(last, to)));
    say(this.live, this.plot.getAttribute("aria-label"));
  }
}
