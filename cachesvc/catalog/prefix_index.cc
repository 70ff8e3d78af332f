#include "cachesvc/catalog/prefix_index.h"

#include <algorithm>
#include <iterator>

namespace precis {
namespace {

// Limit on the tails that a search tries in one block: few turns end inside one block, but a block
// may have thousands of tokens.
constexpr int kTailsTriedMax = 64;

// Returns the number of kept entries among the path's tokens before `position`, as if the segment's
// own entries were evenly spread.
std::uint64_t entries_before(const SegmentNode& segment, std::uint32_t position) {
  const SegmentRow& row = *segment.row;
  const std::uint64_t own = row.plan.total();
  const double share = static_cast<double>(position - row.begin) / (row.end - row.begin);
  return segment.chain_entries - own + static_cast<std::uint64_t>(static_cast<double>(own) * share);
}

// Rows from disk may name blocks at other positions; such rows neither cover nor end there.
bool covers_position(const SegmentRow& row, std::size_t position) {
  return row.begin < position && position <= row.end;
}
bool ends_behind(const SegmentRow& row, std::size_t position) {
  return row.end == position + row.tail.size();
}

}  // namespace

bool PrefixIndex::Candidate::operator<(const Candidate& other) const {
  if (segment->faithful_ppm != other.segment->faithful_ppm) {
    return segment->faithful_ppm > other.segment->faithful_ppm;
  }
  const std::uint64_t entries = entries_before(*segment, position);
  const std::uint64_t others = entries_before(*other.segment, other.position);
  if (entries != others) return entries > others;
  const SegmentRow &a = *segment->row, &b = *other.segment->row;
  if (a.created_unix_ms != b.created_unix_ms) return a.created_unix_ms > b.created_unix_ms;
  return a.id < b.id;
}

template <typename Change>
void PrefixIndex::change(const SegmentNode& segment, const Change& apply) {
  const SegmentRow& row = *segment.row;
  std::uint32_t position = row.begin / segment.block_tokens * segment.block_tokens;
  for (const Digest& digest : row.blocks) {
    position += segment.block_tokens;
    Boundary& boundary = boundaries_[digest];
    apply(segment.whole_only ? boundary.whole_only : boundary.covering,
          Candidate{position, &segment});
  }
  apply(boundaries_[segment.boundary].ending[row.tail], Candidate{row.end, &segment});
}

// A row from disk may name a block twice. Its segment is then one candidate there.
void PrefixIndex::insert(const SegmentNode& segment) {
  change(segment, [](Candidates& at, const Candidate& candidate) {
    if (at.size() == 1) at.begin()->segment->has_rivals = true;
    if (!at.empty()) candidate.segment->has_rivals = true;
    at.insert(candidate);
  });
}

void PrefixIndex::erase(const SegmentNode& segment) {
  change(segment, [](Candidates& at, const Candidate& candidate) { at.erase(candidate); });
  // Erases empty boundaries: the bisection relies on their absence.
  const auto tidy = [this](const Digest& digest) {
    const auto at = boundaries_.find(digest);
    if (at == boundaries_.end()) return;
    const Boundary& left = at->second;
    if (left.covering.empty() && left.whole_only.empty() && left.ending.empty()) {
      boundaries_.erase(at);
    }
  };
  auto& ending = boundaries_.at(segment.boundary).ending;
  if (const auto tail = ending.find(segment.row->tail); tail->second.empty()) ending.erase(tail);
  for (const Digest& digest : segment.row->blocks) {
    if (digest != segment.boundary) tidy(digest);
  }
  tidy(segment.boundary);
  segment.has_rivals = false;
}

// The change can only alter the order among several candidates. So the segment leaves the
// boundaries where it has rivals. It stays where it is the only candidate, or where its rivals have
// left.
void PrefixIndex::begin_change(const SegmentNode& segment) {
  if (!segment.has_rivals) return;
  segment.has_rivals = false;
  change(segment, [](Candidates& at, const Candidate& candidate) {
    if (at.size() > 1 && at.erase(candidate) > 0) candidate.segment->has_rivals = true;
  });
}

void PrefixIndex::end_change(const SegmentNode& segment) {
  if (segment.has_rivals) insert(segment);  // it is still there where it had no rival
}

// Returns the boundary after `block` whole blocks, or null if no segment covers it or ends within
// the block after it.
const PrefixIndex::Boundary* PrefixIndex::find(const TokenPath& path, std::size_t block) const {
  const auto at = boundaries_.find(block == 0 ? path.root : path.blocks[block - 1]);
  return at == boundaries_.end() ? nullptr : &at->second;
}

template <typename Fits>
const SegmentNode* PrefixIndex::Query::best(const Candidates& candidates, const Fits& fits) const {
  for (const Candidate& each : candidates) {
    if (!suits(each)) return nullptr;
    if (fits(*each.segment)) return each.segment;
  }
  return nullptr;
}

// Returns the candidates of the longest tail that `rest` begins with and that suits. Returns null
// if there is none, or if kTailsTriedMax tails did not suit. The search takes the greatest tail
// that is not above `rest`. It is either the wanted tail, or has a common beginning with `rest`
// that is at least as long as the wanted tail; then `rest` is cut to that beginning.
const PrefixIndex::Candidates* PrefixIndex::longest_tail(const Query& query,
                                                         const Boundary& boundary,
                                                         std::span<const TokenId> rest) {
  if (boundary.ending.empty()) return nullptr;
  std::vector<TokenId> most(rest.begin(), rest.end());
  for (int tried = 0; tried < kTailsTriedMax; ++tried) {
    auto tail = boundary.ending.upper_bound(most);
    if (tail == boundary.ending.begin()) return nullptr;
    --tail;
    const auto differ =
        std::mismatch(tail->first.begin(), tail->first.end(), most.begin(), most.end());
    const bool is_tail = differ.first == tail->first.end();
    if (is_tail && query.suits(tail->second)) return &tail->second;
    if (is_tail && tail->first.empty()) return nullptr;
    most.erase(is_tail ? differ.second - 1 : differ.second, most.end());
  }
  return nullptr;
}

// Returns the best segment with the longest tail that ends by `end`, or null if there is none.
const SegmentNode* PrefixIndex::best_behind(const Query& query, const Boundary& boundary,
                                            std::size_t position, std::size_t end) {
  const TokenPath& path = query.path;
  const std::size_t length = std::min<std::size_t>(end - position, path.block_tokens - 1);
  const Candidates* const candidates =
      longest_tail(query, boundary, path.tokens.subspan(position, length));
  if (!candidates) return nullptr;
  return query.best(
      *candidates, [&](const SegmentNode& segment) { return ends_behind(*segment.row, position); });
}

// Returns the last boundary that a suitable segment covers. All earlier ones are covered too.
std::size_t PrefixIndex::last_covered(const Query& query) const {
  std::size_t covered = 0;
  for (std::size_t other = query.path.blocks.size() + 1; other - covered > 1;) {
    const std::size_t middle = covered + (other - covered) / 2;
    const Boundary* const boundary = find(query.path, middle);
    if (boundary && query.suits(*boundary)) {
      covered = middle;
    } else {
      other = middle;
    }
  }
  return covered;
}

// A boundary inside segments that are matched only whole leads to an earlier match.
std::optional<PrefixIndex::Match> PrefixIndex::longest(const TokenPath& path,
                                                       std::uint32_t faithful_ppm) const {
  const Query query{path, faithful_ppm};
  for (std::size_t block = last_covered(query) + 1; block-- > 0;) {
    const Boundary* const boundary = find(path, block);
    if (!boundary) continue;  // nothing is stored under this root
    const std::size_t position = block * path.block_tokens;
    const SegmentNode* const whole = best_behind(query, *boundary, position, path.tokens.size());
    if (whole && !whole->row->tail.empty()) return Match{whole, whole->row->end};
    const auto at = static_cast<std::uint32_t>(position);
    const SegmentNode* const covering = query.best(
        boundary->covering,
        [&](const SegmentNode& segment) { return covers_position(*segment.row, position); });
    if (!whole && !covering) continue;
    const bool is_whole = whole && (!covering || Candidate{at, whole} < Candidate{at, covering});
    return Match{is_whole ? whole : covering, at};
  }
  return std::nullopt;
}

bool PrefixIndex::covers(const Digest& block) const {
  const auto at = boundaries_.find(block);
  return at != boundaries_.end() && !(at->second.covering.empty() && at->second.whole_only.empty());
}

const SegmentNode* PrefixIndex::last_whole(const TokenPath& path,
                                           std::uint32_t faithful_ppm) const {
  if (path.tokens.empty()) return nullptr;
  const Query query{path, faithful_ppm};
  const std::size_t last = path.tokens.size() - 1;  // the last position at which a parent may end
  for (std::size_t block = std::min(last / path.block_tokens, last_covered(query)) + 1;
       block-- > 0;) {
    const Boundary* const boundary = find(path, block);
    if (!boundary) continue;
    const std::size_t position = block * path.block_tokens;
    if (const SegmentNode* const whole = best_behind(query, *boundary, position, last)) {
      return whole;
    }
  }
  return nullptr;
}

}  // namespace precis
