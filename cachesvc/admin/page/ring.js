// The last readings of the counters, and the rates between them.

const kReadingsMax = 900;  // 30 minutes at one every 2 seconds

export class Ring {
  #points = [];
  #last = null;  // {at, stats}

  // `stats`: of /api/v1/stats. `at`: milliseconds.
  add(at, stats) {
    const last = this.#last;
    this.#last = { at, stats };
    const restarted = last !== null &&
      stats.precis_requests_total < last.stats.precis_requests_total;
    const seconds = last === null || restarted ? 0 : (at - last.at) / 1000;
    const by = (name) => (seconds > 0 ? stats[name] - last.stats[name] : 0);
    const share = (part, all) => (by(all) > 0 ? by(part) / by(all) : null);
    this.#push({
      at,
      hits: share("precis_lookup_hits_total", "precis_lookups_total"),
      hitTokens: share("precis_lookup_hit_tokens_total", "precis_lookup_tokens_total"),
      bytesIn: seconds > 0
        ? (by("precis_pulled_bytes_total") + by("precis_in_place_bytes_total")) / seconds : null,
      bytesOut: seconds > 0 ? by("precis_pushed_bytes_total") / seconds : null,
      stored: stats.precis_stored_bytes,
      original: stats.precis_original_bytes,
      puts: stats.precis_open_puts,
      gets: stats.precis_open_gets,
      waiting: stats.precis_waiting_requests,
    });
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
