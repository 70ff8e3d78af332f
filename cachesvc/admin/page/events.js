// The events of the tenant's segments, live. The list is bounded. A stream that ends is opened
// again from the last event, and the service says if events in between are gone.
import { call } from "./api.js";
import { $, el, rove, say } from "./dom.js";
import { readEvents } from "./event_stream.js";
import { budget, bytes, clock, count, duration, plural, time } from "./format.js";

const kKept = 500, kShown = 200;
const kDrawMs = 250;
const kWaitMs = 2000, kWaitMaxMs = 30000;

const kCauses = {
  asked: "asked for", capacity: "to stay within max_disk_bytes", damaged: "damaged",
  dropped: "not yet on the disk", consolidated: "part of a larger segment now",
};

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

export class Events {
  // modelName: of a fingerprint. onSegment: the operator chooses a stored segment.
  constructor({ modelName, onSegment }) {
    Object.assign(this, { modelName, onSegment, turn: 0, close: null, paused: false,
                          begun: false, timer: null });
    $("event-kind").addEventListener("change", () => this.#draw());
    $("event-filter").addEventListener("input", () => this.#draw());
    $("event-pause").addEventListener("click", () => this.#pause(!this.paused));
    // A hidden tab closes its stream, because the service allows 16.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#stop();
      else if (this.begun) this.start();
    });
  }

  // Forgets the events of the former tenant.
  clear() {
    this.#stop();
    Object.assign(this, { position: null, rows: [], lost: 0, begun: false });
    this.#draw();
  }

  // Starts with the page's tenant, from now on.
  start() {
    this.begun = true;
    if (!this.paused && !document.hidden) this.#run();
  }

  #pause(paused) {
    this.paused = paused;
    say($("event-pause"), paused ? "Resume" : "Pause");
    if (!paused) return this.begun ? this.#run() : undefined;
    this.#stop();
    this.#state("wait", "Paused. Resume shows what happens in between.");
  }

  #stop() {
    this.turn += 1;
    this.close?.abort();
  }

  async #run() {
    this.#stop();
    const turn = this.turn;
    let wait = kWaitMs;
    while (turn === this.turn) {
      let why = "The stream has ended";
      this.ended = null;
      this.close = new AbortController();
      try {
        const from = this.position ??
          (await call("events", { query: { after: "newest", limit: 1 } })).next;
        if (turn !== this.turn) return;
        this.position = from;
        await readEvents(from, this.close.signal, {
          onOpen: () => {
            wait = kWaitMs;
            this.#state("up", "Live");
          },
          onEvent: (event) => { if (turn === this.turn) this.#take(event); },
        });
      } catch (error) {
        why = error.status === undefined ? "The stream is interrupted" : error.message;
      }
      if (turn !== this.turn) return;
      this.#state("warn", `${this.ended ?? why}. Connecting again in ${duration(wait / 1000)}.`);
      await sleep(wait);
      wait = Math.min(2 * wait, kWaitMaxMs);
    }
  }

  #take(event) {
    if (event.event === "end") {
      this.ended = event.message;
      return;
    }
    this.position = event.position;
    if (event.event === "lost") this.lost += 1;
    this.rows.push(event);
    if (this.rows.length > kKept) this.rows.splice(0, this.rows.length - kKept);
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.#draw();
    }, kDrawMs);
  }

  #state(state, text) {
    $("event-state").dataset.state = state;
    say($("event-state"), text);
  }

  #draw() {
    const kind = $("event-kind").value, filter = $("event-filter").value.trim().toLowerCase();
    const matches = (event) => event.event === "lost" || ((kind === "" || event.event === kind) &&
      (event.segment.includes(filter) ||
       this.modelName(event.model).toLowerCase().includes(filter)));
    const found = this.rows.filter(matches).reverse();
    const shown = found.slice(0, kShown);
    const body = $("event-table").tBodies[0];
    const focused = document.activeElement?.closest?.("#event-table tr")?.dataset.position;
    body.replaceChildren(...shown.map((event) => this.#row(event)));
    if (shown.length === 0) {
      body.append(el("tr", {}, el("td", { colspan: 8, class: "empty" },
        this.rows.length === 0 ? "Nothing has happened since this page was opened."
          : "No event matches the filter.")));
    }
    const buttons = [...body.querySelectorAll("button")];
    rove(buttons, 1);
    if (focused !== undefined) {
      (body.querySelector(`tr[data-position="${CSS.escape(focused)}"] button`) ?? buttons[0])
        ?.focus({ preventScroll: true });
    }
    say($("event-count"), shown.length < found.length
      ? `The newest ${count(shown.length)} of ${plural(found.length, "event")}.`
      : found.length > 0 ? `${plural(found.length, "event")}.` : "");
    $("event-lost").hidden = this.lost === 0;
    say($("event-lost"), "Events were lost. The service then listed what it stores; rows marked " +
      "lost show where.");
  }

  #row(event) {
    if (event.event === "lost") {
      return el("tr", { "data-position": event.position }, el("td"),
        el("td", {}, el("span", { class: "kind lost" }, "lost")),
        el("td", { colspan: 6 }, event.lost === null
          ? "The service was started again. What it stores follows."
          : `${plural(event.lost, "event")} are no longer kept. What is stored follows.`));
    }
    const short = event.segment.slice(0, 12);
    const removed = event.event === "removed";
    const freed = event.bytes_before ?? null;
    return el("tr", { "data-position": event.position },
      el("td", { title: time(event.unix_ms) }, clock(event.unix_ms)),
      el("td", {}, el("span", { class: `kind ${event.event}` }, event.event)),
      el("td", { class: "id" }, removed ? el("code", { title: event.segment }, short)
        : el("button", { type: "button", class: "link", title: event.segment,
                         "aria-label": `Segment ${short}`,
                         onclick: () => this.onSegment(event.segment) }, short)),
      el("td", { class: "name" }, this.modelName(event.model)),
      el("td", { class: "number" }, count(event.end - event.begin)),
      el("td", { class: "number" }, removed ? "–" : bytes(event.stored_bytes)),
      el("td", { class: "number" }, freed === null ? "–"
        : bytes(freed - (removed ? 0 : event.stored_bytes))),
      el("td", {}, removed ? kCauses[event.cause] ?? event.cause : budget(event.keep)));
  }
}
