#include "cachesvc/catalog/prefix_index.h"

#include <algorithm>
#include <iterator>

namespace precis {
namespace {

// Entries kept among the path's tokens before `position`, the segment's own taken as evenly spread.
std::uint64_t entries_before(const SegmentNode& segment, std::uint32_t position) {
  const SegmentRow& row = *segment.row;
  const std::uint64_t own = row.plan.total();
  const double share = static_cast<double>(position - row.begin) / (row.end - row.begin);
  return segment.chain_entries - own + static_cast<std::uint64_t>(static_cast<double>(own) * share);
}

// Rows from disk may name blocks of other places, which they neither cover nor end behind.
bool covers(const SegmentRow& row, std::size_t position) {
  return row.begin < position && position <= row.end;
}
bool ends_behind(const SegmentRow& row, std::size_t position) {
  return row.end == position + row.tail.size();
}

}  // namespace

bool PrefixIndex::Candidate::operator<(const Candidate& other) const {
  if (entries != other.entries) return entries > other.entries;
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
    apply(boundaries_[digest].covering, Candidate{entries_before(segment, position), &segment});
  }
  apply(boundaries_[segment.boundary].ending[row.tail], Candidate{segment.chain_entries, &segment});
}

// A row from disk may name a block twice: its segment is then one candidate there.
void PrefixIndex::insert(const SegmentNode& segment) {
  change(segment, [](Candidates& at, const Candidate& candidate) { at.insert(candidate); });
}

void PrefixIndex::erase(const SegmentNode& segment) {
  change(segment, [](Candidates& at, const Candidate& candidate) { at.erase(candidate); });
  // Nothing empty stays behind: presence is what the bisection asks for.
  const auto tidy = [this](const Digest& digest) {
    const auto at = boundaries_.find(digest);
    if (at == boundaries_.end()) return;
    if (at->second.covering.empty() && at->second.ending.empty()) boundaries_.erase(at);
  };
  auto& ending = boundaries_.at(segment.boundary).ending;
  if (const auto tail = ending.find(segment.row->tail); tail->second.empty()) ending.erase(tail);
  for (const Digest& digest : segment.row->blocks) {
    if (digest != segment.boundary) tidy(digest);
  }
  tidy(segment.boundary);
}

// The boundary after `block` whole blocks; null if no segment covers it or ends behind it.
const PrefixIndex::Boundary* PrefixIndex::find(const TokenPath& path, std::size_t block) const {
  const auto at = boundaries_.find(block == 0 ? path.root : path.blocks[block - 1]);
  return at == boundaries_.end() ? nullptr : &at->second;
}

// Those whose tail is the longest that `rest` begins with; null if there is none. The greatest tail
// not above `rest` is that tail, or else it shares with `rest` all that any such tail can have.
const PrefixIndex::Candidates* PrefixIndex::longest_tail(const Boundary& boundary,
                                                         std::span<const TokenId> rest) {
  std::vector<TokenId> query(rest.begin(), rest.end());
  for (;;) {
    auto tail = boundary.ending.upper_bound(query);
    if (tail == boundary.ending.begin()) return nullptr;
    --tail;
    const auto differ =
        std::mismatch(tail->first.begin(), tail->first.end(), query.begin(), query.end());
    if (differ.first == tail->first.end()) return &tail->second;
    query.erase(differ.second, query.end());
  }
}

// The best of those whose tail is the longest; null if there is none.
const SegmentNode* PrefixIndex::best_behind(const Boundary& boundary, std::span<const TokenId> rest,
                                            std::size_t position) {
  const Candidates* const candidates = longest_tail(boundary, rest);
  if (!candidates) return nullptr;
  const auto best = std::ranges::find_if(*candidates, [&](const Candidate& each) {
    return ends_behind(*each.segment->row, position);
  });
  return best == candidates->end() ? nullptr : best->segment;
}

// Boundaries 1 to this one are here, those behind are not.
std::size_t PrefixIndex::last_present(const TokenPath& path) const {
  std::size_t present = 0;
  for (std::size_t absent = path.blocks.size() + 1; absent - present > 1;) {
    const std::size_t middle = present + (absent - present) / 2;
    if (find(path, middle)) {
      present = middle;
    } else {
      absent = middle;
    }
  }
  return present;
}

std::optional<PrefixIndex::Match> PrefixIndex::longest(const TokenPath& path) const {
  const std::size_t present = last_present(path);
  const Boundary* const boundary = find(path, present);
  if (!boundary) return std::nullopt;  // Nothing is stored under this root.
  const std::size_t position = present * path.block_tokens;
  const std::size_t length =
      std::min<std::size_t>(path.tokens.size() - position, path.block_tokens - 1);
  const auto rest = path.tokens.subspan(position, length);
  const SegmentNode* const whole = best_behind(*boundary, rest, position);
  if (whole && !whole->row->tail.empty()) return Match{whole, whole->row->end};
  const auto covering = std::ranges::find_if(boundary->covering, [&](const Candidate& each) {
    return covers(*each.segment->row, position);
  });
  if (covering == boundary->covering.end()) return std::nullopt;  // At the root, and no tail fits.
  return Match{covering->segment, static_cast<std::uint32_t>(position)};
}

const SegmentNode* PrefixIndex::last_whole(const TokenPath& path) const {
  if (path.tokens.empty()) return nullptr;
  const std::size_t last = path.tokens.size() - 1;  // the last position where a parent may end
  for (std::size_t block = std::min(last / path.block_tokens, last_present(path)) + 1;
       block-- > 0;) {
    const Boundary* const boundary = find(path, block);
    if (!boundary) continue;
    const std::size_t position = block * path.block_tokens;
    const std::size_t length = std::min<std::size_t>(last - position, path.block_tokens - 1);
    const auto rest = path.tokens.subspan(position, length);
    if (const SegmentNode* const whole = best_behind(*boundary, rest, position)) return whole;
  }
  return nullptr;
}

}  // namespace precis
