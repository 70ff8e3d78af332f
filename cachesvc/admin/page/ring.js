// The last readings of the counters, and the rates between them.

const kReadingsMax = 900;  // 30 minutes at one every 2 seconds
const kSmooth = 10;

export class Ring {
  #points = [];
  #last = null;  // {at, stats}
  #recent = [];  // the last stats: a put's bytes come in and go out in different readings

  // `stats`: of /api/v1/stats. `at`: milliseconds.
  add(at, stats) {
    const last = this.#last;
    this.#last = { at, stats };
    const restarted = last !== null &&
      stats.precis_requests_total < last.stats.precis_requests_total;
    if (last === null || restarted) this.#recent = [];
    this.#recent = [...this.#recent.slice(-kSmooth), stats];
    const seconds = last === null || restarted ? 0 : (at - last.at) / 1000;
    const by = (name) => (seconds > 0 ? stats[name] - last.stats[name] : 0);
    const share = (part, all) => (by(all) > 0 ? by(part) / by(all) : null);
    const rate = (...names) => (seconds > 0
      ? names.reduce((sum, name) => sum + by(name), 0) / seconds : null);
    this.#push({
      at,
      hits: share("precis_lookup_hits_total", "precis_lookups_total"),
      hitTokens: share("precis_lookup_hit_tokens_total", "precis_lookup_tokens_total"),
      bytesIn: rate("precis_pulled_bytes_total", "precis_in_place_bytes_total"),
      bytesOut: rate("precis_pushed_bytes_total"),
      kept: stats.precis_original_bytes > 0
        ? stats.precis_stored_bytes / stats.precis_original_bytes : null,
      keptNew: this.#kept(),
      putsDone: rate("precis_puts_committed_total"),
      getsDone: rate("precis_gets_total"),
      requests: rate("precis_requests_total"),
      failed: rate("precis_requests_failed_total"),
      stored: stats.precis_stored_bytes,
      puts: stats.precis_open_puts,
      gets: stats.precis_open_gets,
      waiting: stats.precis_waiting_requests,
    });
  }

  // The share that the latest puts have kept, null if there were none.
  #kept() {
    const [from, to] = [this.#recent[0], this.#recent.at(-1)];
    const by = (way) => to[`precis_compressed_${way}_bytes_total`] -
      from[`precis_compressed_${way}_bytes_total`];
    return by("in") > 0 ? Math.min(1, by("out") / by("in")) : null;
  }

  // The service did not answer: lines have a gap here.
  addGap(at) {
    this.#last = null;
    if (this.#points.length > 0) this.#push({ at });
  }

  clear() {
    this.#points = [];
    this.#last = null;
  }

  get points() {
    return this.#points;
  }

  #push(point) {
    this.#points.push(point);
    if (this.#points.length > kReadingsMax) this.#points.shift();
  }
}
