#include "tests/simulate/acts.h"

#include <algorithm>

namespace precis::simulate {

using testing::Kv;

// ---- changes of one path, by one client at a time

void Acts::put(Client& client, const Model& model, Path& path) {
  // Puts the next segment, or a stored one once more.
  const std::size_t ready = machine_.chance(0.5) ? stored_of(path) : possible(path);
  const std::size_t next = std::min<std::size_t>(ready, kSegments - 1);
  const std::size_t n = machine_.chance(0.8) ? next : machine_.random(next + 1);
  if ((n > 0 && !path.segments[n - 1].id) || !begin_change(path)) return;
  const Span since = span(path);
  Segment& segment = path.segments[n];
  // If the segment was consolidated, the consolidated segment stays beside the one that is put.
  if (segment.state != State::kAbsent && may_be_consolidated(path, n)) segment.is_elsewhere = true;
  if (segment.state == State::kAbsent) segment.state = State::kMaybe;
  segment.entries_max.reset();
  const auto durability = static_cast<Durability>(machine_.random(3));
  // If the service has removed the stored segment to make room, a crash can lose the new one.
  const bool may_be_lost = limited() && durability == Durability::kMemory;
  if (may_be_lost && segment.state == State::kStored) segment.state = State::kMaybe;
  const auto stored = [&]() -> Result<msg::SegmentInfo> {
    PRECIS_ASSIGN(Put put, client.begin_put(model, tokens_of(path, n + 1), options_of(path, n)));
    if (segment.id && segment.id != put.begun().segment) breaks("a segment has two ids");
    segment.id = put.begun().segment;
    for (std::uint32_t l = 0; l < segment.kv.layers.size(); ++l) {
      if (machine_.chance(0.02)) pause(30);  // a slow client
      PRECIS_TRY(put.start_layer(l, segment.kv.layers[l].push()));
    }
    return put.commit(durability);
  }();
  note(stored.status(), "put");
  trace("  put segment {} at {}: {}", n, static_cast<int>(durability), stored.status().to_string());
  if (stored.ok()) settle(path, n, durability, since);
  path.changing = false;
}

// A put was acknowledged; its ancestors are at least as durable.
void Acts::settle(Path& path, std::size_t n, Durability durability, const Span& since) {
  const bool synced = durability == Durability::kFsync;
  if (durability == Durability::kMemory) return;
  const bool lost = host_->power_losses() != since.power_losses && !synced;
  for (std::size_t i = 0; i <= n; ++i) {
    Segment& segment = path.segments[i];
    segment.synced = segment.synced || synced;
    segment.state = lost ? State::kMaybe : State::kStored;
  }
}

void Acts::trim(Client& client, Path& path) {
  const std::size_t sure = sure_of(path);
  if (sure == 0 || !begin_change(path)) return;
  const Span since = span(path);
  Segment& segment = path.segments[machine_.random(sure)];
  segment.entries_max.reset();
  const auto keep =
      Budget::ratio_ppm(100'000 + static_cast<std::uint32_t>(machine_.random(200'000)));
  const auto durability = static_cast<Durability>(machine_.random(3));
  const auto trimmed = client.trim_segment(*segment.id, keep, durability);
  // The segment may already store less than that.
  if (trimmed.status().code() != StatusCode::kConflict) note(trimmed.status(), "trim");
  trace("  trim segment {} to {}: {}", &segment - path.segments.data(), keep.to_string(),
        trimmed.ok() ? fmt::format("{} entries", trimmed->entries) : trimmed.status().to_string());
  // A crash may undo the trim.
  if (trimmed.ok() && host_->crashes() == since.crashes && !segment.is_elsewhere) {
    segment.entries_max = trimmed->entries;
  }
  path.changing = false;
}

void Acts::remove(Client& client, Path& path) {
  const std::size_t sure = sure_of(path);
  if (sure == 0 || !begin_change(path)) return;
  const Span since = span(path);
  const std::size_t n = machine_.random(sure);
  const std::size_t first = first_with(path, n);  // it goes with what it was consolidated with
  std::vector<State> before;
  for (std::size_t i = first; i < kSegments; ++i) {
    Segment& segment = path.segments[i];
    before.push_back(segment.state);
    if (segment.state == State::kStored) segment.state = State::kMaybe;
  }
  const bool held = path.pinned == true && path.tip && path.tip_segment >= n;
  const auto removed = client.remove_segment(*path.segments[n].id, /*recursive=*/true);
  const bool refused = removed.status().code() == StatusCode::kConflict;
  if (refused && path.pinned != false) {
    for (std::size_t i = first; i < kSegments; ++i) path.segments[i].state = before[i - first];
    path.changing = false;
    return;
  }
  note(removed.status(), "remove");
  if (removed.ok() && held && host_->crashes() == since.crashes) {
    breaks("the tip of a pinned session was removed");
  }
  path.tip.reset();
  trace("  remove segment {}: {}", n, removed.status().to_string());
  const bool sure_gone = removed.ok() && host_->power_losses() == since.power_losses;
  if (removed.status().code() == StatusCode::kNotFound && host_->crashes() == since.crashes) {
    breaks(fmt::format("a stored segment is not found: {}", removed.status().to_string()));
  }
  for (std::size_t i = first; i < kSegments; ++i) {
    path.segments[i].synced = false;
    path.segments[i].entries_max.reset();
    if (sure_gone && i >= n) path.segments[i].state = State::kAbsent;
  }
  path.changing = false;
}

void Acts::branch(Client& client, const Model& model, Path& path) {
  const std::size_t sure = sure_of(path);
  if (sure == 0 || !begin_change(path)) return;
  const std::size_t n = machine_.random(sure);
  Segment& segment = path.segments[n];
  const std::uint32_t first = segment.kv.begin / model_.block_tokens + 1;
  const std::uint32_t blocks = (segment.end - 1) / model_.block_tokens + 1 - first;
  const bool divides = !model_.hides_tokens(segment.end - segment.kv.begin);
  if (blocks > 0 && divides) {
    const std::uint32_t begin =
        (first + static_cast<std::uint32_t>(machine_.random(blocks))) * model_.block_tokens;
    // The segments with which this one was consolidated are split too.
    const std::size_t run = first_with(path, n);
    for (std::size_t i = run; i < kSegments && first_with(path, i) == run; ++i) {
      path.segments[i].is_elsewhere = true;
      path.segments[i].entries_max.reset();
    }
    path.left_at_most = std::max(path.left_at_most, begin);
    std::vector<TokenId> tokens;
    const Segment added = make_branch(machine_, kv_random_, model_, path, segment, begin, tokens);
    PutOptions options;
    options.recipe = added.recipe;
    options.keep = added.keep;
    if (machine_.chance(0.7)) {
      options.parent = segment.id;
      options.parent_end = begin;
    }
    const auto stored = [&]() -> Status {
      PRECIS_ASSIGN(Put put, client.begin_put(model, tokens, options));
      if (options.parent && put.begun().begin != begin) breaks("a put begins at another token");
      if (put.begun().begin != begin || machine_.chance(0.2)) return {};  // abandons it
      for (std::uint32_t l = 0; l < added.kv.layers.size(); ++l) {
        PRECIS_TRY(put.start_layer(l, added.kv.layers[l].push()));
      }
      return put.commit(static_cast<Durability>(machine_.random(3))).status();
    }();
    note(stored, "put of a branch");
    trace("  branch at {}: {}", begin, stored.to_string());
    const auto match = client.lookup(model, tokens);
    note(match.status(), "lookup of a branch");
    if (match.ok() && *match) {
      const auto prefix = client.get(*match);
      const Status status = prefix.ok() ? prefix->wait() : prefix.status();
      note(status, "get of a branch");
      // The last KV that holds a position counts. The branch holds the positions from `begin` on.
      std::vector<const Kv*> kvs;
      for (const Segment& each : path.segments) kvs.push_back(&each.read_kv);
      kvs.push_back(&added.read_kv);
      if (status.ok() && !testing::rows_are_of(testing::copy_of(*prefix), kvs)) {
        breaks("a get of a branch served rows that were never put at their position");
      }
    }
  }
  path.changing = false;
}

// Begins a put, and leaves it at some layer: nothing of it may ever be seen.
void Acts::abandon(Client& client, const Model& model, Path& path) {
  const std::size_t n = sure_of(path);
  if (n == kSegments || (n > 0 && !path.segments[n - 1].id)) return;
  auto put = client.begin_put(model, tokens_of(path, n + 1), options_of(path, n));
  note(put.status(), "begin_put");
  if (!put.ok()) return;
  const auto layers = machine_.random(model_.num_layers);
  const Kv& kv = path.segments[n].kv;
  for (std::uint32_t l = 0; l < layers; ++l) {
    if (!put->start_layer(l, kv.layers[l].push()).ok()) return;
  }
  if (machine_.chance(0.3)) pause(60);
}

// ---- reads

void Acts::get(Client& client, const Model& model, Path& path) {
  const Span since = span(path);
  const bool quiet = !path.changing;
  const std::size_t sure = sure_of(path);
  const std::size_t most = possible(path);
  const auto match = client.lookup(model, path.tokens);
  note(match.status(), "lookup");
  if (!match.ok()) return;
  const std::uint32_t matched = match->matched_tokens;
  if (quiet && undisturbed(path, since)) {
    const std::uint32_t least = sure == 0 ? 0 : path.segments[sure - 1].end;
    const std::uint32_t largest =
        std::max(most == 0 ? 0 : path.segments[most - 1].end, path.left_at_most);
    if (matched < least) {
      return breaks(fmt::format("{} tokens match, {} are stored for certain", matched, least));
    }
    if (matched > largest) {
      return breaks(fmt::format("{} tokens match, at most {} can be stored", matched, largest));
    }
  }
  if (!*match) return;
  const bool all = machine_.chance(0.6);
  const auto prefix = client.get(*match, all ? Budget::all() : Budget::ratio_ppm(150'000));
  // A segment may store a smaller share than that.
  if (!all && prefix.status().code() == StatusCode::kInvalidArgument) return;
  Status status = prefix.status();
  if (status.ok()) {
    if (machine_.chance(0.05)) pause(20);  // a slow reader
    status = prefix->wait();
  }
  if (!all && status.code() == StatusCode::kInvalidArgument) return;
  note(status, "get");
  if (!status.ok()) return;
  std::vector<const Kv*> kvs;
  for (const Segment& segment : path.segments) kvs.push_back(&segment.read_kv);
  if (!testing::rows_are_of(testing::copy_of(*prefix), kvs)) {
    breaks("a get served rows that were never put at their position");
  }
  check_windows(path, testing::copy_of(*prefix));
  if (quiet && undisturbed(path, since)) check_trims(path, testing::copy_of(*prefix));
}

// Segments are consolidated only while the shortest window holds all of their tokens.
void Acts::check_windows(const Path& path, const testing::PrefixCopy& prefix) {
  for (std::uint32_t l = 0; l < model_.windows.size(); ++l) {
    for (const testing::HeadCopy& head : prefix[l]) {
      for (const std::uint32_t position : head.positions) {
        const auto segment = std::ranges::upper_bound(path.segments, position, {}, &Segment::end);
        if (segment == path.segments.end()) continue;  // told above
        const std::uint32_t tokens = segment->end - segment->kv.begin;
        if (segment->end - position <= visible_tokens(model_.windows, l, tokens)) continue;
        return breaks(fmt::format("layer {} has token {}, which no later query sees", l, position));
      }
    }
  }
}

void Acts::check_trims(const Path& path, const testing::PrefixCopy& prefix) {
  for (const Segment& segment : path.segments) {
    if (!segment.entries_max) continue;
    std::uint64_t entries = 0;
    for (const auto& layer : prefix) {
      for (const testing::HeadCopy& head : layer) {
        entries += static_cast<std::uint64_t>(
            std::ranges::count_if(head.positions, [&](std::uint32_t position) {
              return position >= segment.kv.begin && position < segment.end;
            }));
      }
    }
    if (entries > *segment.entries_max) {
      breaks(fmt::format("a trim left {} entries, {} are served", *segment.entries_max, entries));
    }
  }
}

void Acts::list(Client& client, Path& path) {
  const Span since = span(path);
  const bool quiet = !path.changing;
  const std::size_t sure = sure_of(path);
  if (limited()) {
    const auto status = client.status();
    note(status.status(), "status");
    if (status.ok() && status->stored_bytes > plot_.max_disk_bytes / 100 * 101) {
      breaks(fmt::format("{} B are stored, the limit is {} B", status->stored_bytes,
                         plot_.max_disk_bytes));
    }
  }
  const auto rows = client.segments();
  note(rows.status(), "segments");
  if (!rows.ok() || !quiet || !undisturbed(path, since)) return;
  for (std::size_t i = 0; i < sure; ++i) {
    const auto found = std::ranges::find(*rows, *path.segments[i].id, &msg::SegmentInfo::id);
    if (found != rows->end()) continue;
    // The list may have the segment into which this one was consolidated. The id of this one then
    // names that segment.
    const auto now = client.segment(*path.segments[i].id);
    if (now.status().code() == StatusCode::kNotFound && undisturbed(path, since)) {
      breaks("a stored segment is missing in the list");
    }
  }
}

void Acts::advance(Client& client, Path& path) {
  const std::size_t stored = stored_of(path);
  if (stored == 0 || !begin_change(path)) return;
  const Span since = span(path);
  // The acknowledged tip is still there: a removal of this path would have cleared path.tip.
  if (path.tip && (!limited() || path.pinned == true)) {
    const auto shown = client.session(path.session);
    note(shown.status(), "session");
    const bool same = shown.ok() && shown->tip == path.tip;
    if (shown.status().code() == StatusCode::kNotFound ||
        (shown.ok() && !same && host_->crashes() == since.crashes)) {
      breaks("the tip of a session went back");
    }
  }
  const SegmentId id = *path.segments[stored - 1].id;
  path.tip.reset();
  const auto opened = client.open_session(path.session, std::nullopt);
  note(opened.status(), "open_session");
  if (opened.ok()) {
    const auto row = client.advance_session(path.session, id);
    if (row.status().code() != StatusCode::kInvalidArgument) note(row.status(), "advance");
    if (row.ok() && host_->crashes() == since.crashes) {
      path.tip = id;
      path.tip_segment = stored - 1;
    }
    pin(client, path, since);
  }
  path.changing = false;
}

void Acts::pin(Client& client, Path& path, const Span& since) {
  if (machine_.chance(0.5)) return;
  const bool pinned = path.pinned == false && machine_.chance(0.5);
  path.pinned.reset();
  const auto row = client.pin_session(path.session, pinned);
  note(row.status(), "pin_session");
  if (row.ok() && host_->crashes() == since.crashes) path.pinned = pinned;
  if (row.ok() && row->tip != path.tip) path.tip.reset();  // it was dropped before the pin
}

}  // namespace precis::simulate
