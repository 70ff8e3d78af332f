// The state of the service in one line, and tiles with the newest numbers.
import { $, el, meter, say, setMeter, svg } from "./dom.js";
import { bytes, count, duration, percent, plural } from "./format.js";

const kSparkPoints = 60;

// Why an operator must act, the most urgent first; empty if nobody must.
function faults(status) {
  const found = [];
  if (status.disk_fault) found.push(`The disk has a fault: ${status.disk_fault}`);
  if (status.disk_low) found.push("The disk is short of space: puts are refused.");
  if (status.doubtful_recovery) {
    const lost = status.lost_changes > 0 ? count(status.lost_changes) : "Some";
    found.push(`${lost} acknowledged changes are missing; precisctl fsck says more.`);
  }
  if (status.segments_out_of_service > 0) {
    found.push(`${count(status.segments_out_of_service)} segments are damaged and not served.`);
  }
  if (status.exposed) found.push(status.exposed);
  return found;
}

class Tile {
  // limited: whether a bar shows the share of a limit. spark: a key of the ring.
  constructor(name, { limited = false, spark = null } = {}) {
    this.key = spark;
    this.value = el("p", { class: "value" }, "–");
    this.note = el("p", { class: "hint" });
    this.meter = limited ? meter(name, 0, "") : null;
    this.line = spark === null ? null : svg("polyline", { class: "spark" });
    this.node = el("div", { class: "tile-card card" }, el("h3", {}, name), this.value, this.note,
      this.meter, this.line === null ? null
        : svg("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", class: "sparkbox",
                       "aria-hidden": "true" }, this.line));
  }

  set(value, note, share = null) {
    say(this.value, value);
    say(this.note, note);
    if (this.meter === null) return;
    this.meter.hidden = share === null;
    if (share === null) return;
    setMeter(this.meter, share, `${value}, ${percent(share)}`);
  }

  spark(points) {
    if (this.line === null) return;
    const values = points.slice(-kSparkPoints).map((point) => point[this.key] ?? 0);
    const most = Math.max(1, ...values);
    const x = (index) => 100 - (values.length - 1 - index) * (100 / (kSparkPoints - 1));
    this.line.setAttribute("points",
      values.map((value, index) => `${x(index).toFixed(1)},${22 - (20 * value) / most}`).join(" "));
  }
}

export class Now {
  constructor() {
    this.tiles = {
      memory: new Tile("Memory", { limited: true }),
      disk: new Tile("Disk", { limited: true }),
      stored: new Tile("Stored KV"),
      puts: new Tile("Puts now", { spark: "puts" }),
      gets: new Tile("Gets now", { spark: "gets" }),
      waiting: new Tile("Waiting requests", { spark: "waiting" }),
    };
    $("tiles").append(...Object.values(this.tiles).map((tile) => tile.node));
  }

  show(status, stats, points) {
    const urgent = faults(status);
    $("health").dataset.state = urgent.length > 0 ? "warn" : "up";
    say($("health"), urgent.length > 0 ? "Up, needs attention" : "Up");
    say($("about"),
      `${status.server} · ${status.device} · up ${duration(status.uptime_seconds)}`);
    this.#alert(urgent.join(" "));
    const { memory, disk, stored, puts, gets, waiting } = this.tiles;
    memory.set(bytes(status.memory_bytes), `of ${bytes(status.memory_limit_bytes)}`,
      status.memory_bytes / status.memory_limit_bytes);
    this.#disk(disk, status, stats);
    const original = stats.precis_original_bytes;
    stored.set(bytes(status.stored_bytes), `${plural(status.segments, "segment")}, ` +
      `${plural(status.models, "model")}, ${plural(status.sessions, "session")}` +
      (original > 0 ? `; ${percent(status.stored_bytes / original)} of the full KV` : ""));
    puts.set(count(stats.precis_open_puts),
      `${count(stats.precis_puts_committed_total)} committed`);
    gets.set(count(stats.precis_open_gets), `${count(stats.precis_gets_total)} in all`);
    waiting.set(count(stats.precis_waiting_requests),
      plural(stats.precis_connected_clients, "client"));
    for (const tile of Object.values(this.tiles)) tile.spark(points);
  }

  #disk(tile, status, stats) {
    const used = stats.precis_disk_bytes;
    if (status.max_disk_bytes > 0) {
      tile.set(bytes(status.stored_bytes), `of the limit of ${bytes(status.max_disk_bytes)}; ` +
        `${bytes(status.disk_free_bytes)} free`, status.stored_bytes / status.max_disk_bytes);
    } else {
      const room = Math.max(0, status.disk_free_bytes - status.disk_min_free_bytes);
      tile.set(bytes(used), `no limit; ${bytes(room)} may still be used`,
        used + room > 0 ? used / (used + room) : null);
    }
  }

  // `state`: "warn" or "down".
  fail(state, text, why) {
    $("health").dataset.state = state;
    say($("health"), text);
    this.#alert(why);
  }

  #alert(text) {
    say($("alerts"), text);
    $("alerts").hidden = text === "";
  }
}
