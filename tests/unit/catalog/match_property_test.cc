// Compares match() and parents() with a reference that searches the tokens of every stored segment.
// Paths are random trees over two tokens, so that they share prefixes, fork and repeat. Segments
// are put, removed, trimmed, put again and quarantined; they were computed over all entries of
// their parents or over fewer. Some models have a layer with a sliding window.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "cachesvc/catalog/faithful.h"
#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

constexpr unsigned kHeads = 6;  // of the fixture's model, over all layers

struct Model {
  std::uint32_t window = 0;
  std::map<SegmentId, NewSegment> stored;
  std::map<SegmentId, bool> quarantined;
};

bool in_service(const Model& model, const SegmentId& id) {
  if (id.is_null()) return true;
  const auto at = model.stored.find(id);
  return at != model.stored.end() && !model.quarantined.at(id) &&
         in_service(model, at->second.row.parent);
}

std::vector<SegmentId> chain_of(const Model& model, SegmentId id) {
  std::vector<SegmentId> chain;
  for (; !id.is_null(); id = model.stored.at(id).row.parent) chain.insert(chain.begin(), id);
  return chain;
}

// One way to cover the first `end` tokens; better_than() orders the ways.
struct Cover {
  std::uint32_t end = 0, faithful = 0;
  std::uint64_t entries = 0, created = 0;
  SegmentId id;
  auto rank() const { return std::tuple(end, faithful, entries, created); }
  bool better_than(const Cover& other) const {
    return rank() != other.rank() ? rank() > other.rank() : id < other.id;
  }
};

std::uint64_t entries_of(const Model& model, const SegmentId& id, std::uint32_t end) {
  std::uint64_t entries = 0;
  for (const SegmentId& link : chain_of(model, id)) {
    const SegmentRow& row = model.stored.at(link).row;
    const double share =
        link == id ? static_cast<double>(end - row.begin) / (row.end - row.begin) : 1;
    entries += static_cast<std::uint64_t>(static_cast<double>(row.plan.total()) * share);
  }
  return entries;
}

// The number of entries that a reader at share `ppm` gets of the first `links` of a chain.
double read_at(const Model& model, const std::vector<SegmentId>& chain, std::size_t links,
               std::uint32_t ppm) {
  double entries = 0;
  for (std::size_t i = 0; i < links; ++i) {
    const SegmentRow& row = model.stored.at(chain[i]).row;
    const double all = (row.end - row.begin) * double{kHeads};
    entries += std::min(static_cast<double>(row.plan.total()), all * ppm / 1e6);
  }
  return entries;
}

// The largest share at which, for every link, a reader gets at most as many of the parents' entries
// as the link was computed over.
std::uint32_t faithful_of(const Model& model, const SegmentId& id) {
  const std::vector<SegmentId> chain = chain_of(model, id);
  std::uint32_t least = kFaithful;
  for (std::size_t link = 1; link < chain.size(); ++link) {
    const SegmentRow& row = model.stored.at(chain[link]).row;
    std::uint64_t stored = 0;
    for (std::size_t i = 0; i < link; ++i) stored += model.stored.at(chain[i]).row.plan.total();
    const double enough = static_cast<double>(row.parent_entries) / 0.95;
    // A row without both numbers counts as computed over all stored entries of its parents.
    if (enough >= static_cast<double>(stored) || (row.parent_entries == 0 && !row.parent_read)) {
      continue;
    }
    std::uint32_t below = 0, above = kFaithful + 1;
    while (row.parent_entries != 0 && above - below > 1) {
      const std::uint32_t middle = below + (above - below) / 2;
      const bool fits = read_at(model, chain, link, middle) <= enough * (1 + 1e-12);
      (fits ? below : above) = middle;
    }
    least = std::min(least, below);
  }
  return least;
}

// Every cover of `ids` by a chain of `model` whose faithfulness is at least `faithful`. If `whole`,
// only covers by whole segments.
std::vector<Cover> covers(const Model& model, const Tokens& ids, std::uint32_t block, bool whole,
                          std::uint32_t faithful) {
  std::vector<Cover> all;
  for (const auto& [id, segment] : model.stored) {
    if (!in_service(model, id)) continue;
    const std::uint32_t its = faithful_of(model, id);
    if (its < faithful) continue;
    const SegmentRow& row = segment.row;
    for (std::uint32_t end = row.begin + 1; end <= row.end; ++end) {
      const bool whole_only = whole || (model.window > 0 && model.window < row.end - row.begin);
      if (end != row.end && (whole_only || end % block != 0)) continue;
      if (end > ids.size() || !std::equal(ids.begin(), ids.begin() + end, segment.path.begin()))
        continue;
      all.push_back({end, its, entries_of(model, id, end), row.created_unix_ms, id});
    }
  }
  return all;
}

const Cover* best_of(const std::vector<Cover>& all) {
  const Cover* best = nullptr;
  for (const Cover& cover : all) {
    if (!best || cover.better_than(*best)) best = &cover;
  }
  return best;
}

class Trial {
 public:
  Trial(unsigned seed, std::uint32_t block, std::uint32_t window)
      : random_(seed), block_(block), f_(block, window) {
    model_.window = window;
  }

  void step() {
    const unsigned kind = number(12);
    if (kind < 7 || model_.stored.empty()) {
      add();
    } else if (kind < 8) {
      remove();
    } else if (kind < 9) {
      quarantine();
    } else if (kind < 11) {
      trim();
    } else {
      put_anew();
    }
  }

  void check() {
    const Tokens ids = query();
    CAPTURE(ids);
    const std::uint32_t faithful = (std::array{0u, 105'263u, 300'000u, kFaithful})[number(4)];
    CAPTURE(faithful);
    const std::vector<Cover> all = covers(model_, ids, block_, /*whole=*/false, faithful);
    const auto links = f_.match(ids, faithful);
    const Cover* const best = best_of(all);
    REQUIRE(links.empty() == (best == nullptr));
    if (best) {
      const auto chain = chain_of(model_, best->id);
      REQUIRE(links.size() == chain.size());
      for (std::size_t i = 0; i < links.size(); ++i) {
        REQUIRE(links[i].row->id == chain[i]);
        const bool last = i + 1 == links.size();
        REQUIRE(links[i].matched_end == (last ? best->end : links[i].row->end));
      }
    }
    check_parents(ids, faithful);
  }

 private:
  void check_parents(const Tokens& ids, std::uint32_t faithful) {
    if (ids.empty()) return;
    const Tokens proper(ids.begin(), ids.end() - 1);
    const std::vector<Cover> all = covers(model_, proper, block_, /*whole=*/true, faithful);
    const Cover* const best = best_of(all);
    REQUIRE(f_.parents(ids, faithful) ==
            (best ? chain_of(model_, best->id) : std::vector<SegmentId>()));
  }

  unsigned number(unsigned below) { return random_() % below; }
  NewSegment& any() {
    return std::next(model_.stored.begin(), number(static_cast<unsigned>(model_.stored.size())))
        ->second;
  }
  void append_tokens(Tokens& ids, unsigned count) {
    for (unsigned i = 0; i < count; ++i) ids.push_back(number(2));
  }

  void add() {
    const NewSegment* parent = nullptr;
    if (!model_.stored.empty() && number(4) != 0) parent = &any();
    if (parent && !in_service(model_, parent->row.id)) return;
    Tokens path = parent ? parent->path : Tokens{};
    append_tokens(path, 1 + number(2 * block_ + 2));
    if (number(3) == 0) f_.clock.advance_ms(1);
    std::optional<Budget> read;
    if (parent && number(2) == 0) read = Budget::ratio_ppm(100'000 * (1 + number(4)));
    NewSegment made =
        f_.segment(path, parent, /*variant=*/1 + number(2), /*entries=*/number(4), read);
    if (model_.stored.contains(made.row.id)) return;
    REQUIRE(f_.commit(made).ok());
    model_.quarantined[made.row.id] = false;
    model_.stored.emplace(made.row.id, std::move(made));
  }

  void remove() {
    std::vector<SegmentId> gone;
    REQUIRE(f_.catalog->remove(f_.tenant, any().row.id, /*recursive=*/true, &gone).ok());
    for (const SegmentId& id : gone) model_.stored.erase(id);
  }

  void quarantine() {
    const SegmentRow& row = any().row;
    REQUIRE(f_.catalog->quarantine(row));
    model_.quarantined[row.id] = true;
  }

  void trim() {
    NewSegment& segment = any();
    if (!in_service(model_, segment.row.id) || segment.row.plan.counts[0] == 0) return;
    NewSegment less = trimmed(segment, number(segment.row.plan.counts[0]));
    REQUIRE(*f_.catalog->trim(segment.row, less.row, less.payload(), Durability::kWal));
    whole_.try_emplace(segment.row.id, segment);
    segment = std::move(less);
  }

  // Puts a trimmed or quarantined segment again.
  void put_anew() {
    NewSegment& segment = any();
    const SegmentId id = segment.row.id;
    const bool bad = model_.quarantined[id], is_trimmed = segment.row.trimmed.has_value();
    if ((!bad && !is_trimmed) || !in_service(model_, segment.row.parent)) return;
    if (is_trimmed) segment = whole_.at(id);
    REQUIRE(f_.commit(segment).ok());
    model_.quarantined[id] = false;
  }

  // Usually the beginning of a stored path and some further tokens.
  Tokens query() {
    Tokens ids;
    if (!model_.stored.empty() && number(8) != 0) ids = any().path;
    ids.resize(number(static_cast<unsigned>(ids.size()) + 1));
    append_tokens(ids, number(block_ + 3));
    return ids;
  }

  std::mt19937 random_;
  const std::uint32_t block_;
  CatalogFixture f_;
  Model model_;
  std::map<SegmentId, NewSegment> whole_;  // the segments before their trims
};

}  // namespace

TEST_CASE("match and parents agree with a search through every stored token", "[unit][catalog]") {
  const unsigned seed = GENERATE(range(1u, 9u));
  const std::uint32_t block = GENERATE(1u, 2u, 3u, 5u);
  const std::uint32_t window = GENERATE(0u, 4u);
  CAPTURE(seed, block, window);
  Trial trial(seed, block, window);
  for (int step = 0; step < 60; ++step) {
    CAPTURE(step);
    trial.step();
    for (int query = 0; query < 4; ++query) trial.check();
  }
}
