#include "cachesvc/pipeline/counted_matches.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace precis {
namespace {

// Sizes, in numbers: of an entry without its counts, and of a link's cut with the link's row, whose
// memory stays allocated as long as a key refers to the row.
constexpr std::size_t kEntryNumbers = 64, kLinkNumbers = 256;

std::size_t numbers_in(const CountedMatches::Key& key, const CountedMatch& match) {
  std::size_t numbers = kEntryNumbers + key.rows.size() * kLinkNumbers + match.plan.counts.size();
  for (const auto& counts : match.counts) numbers += counts.size();
  return numbers;
}

}  // namespace

bool CountedMatches::Key::operator<(const Key& other) const {
  const auto others = [](const Key& key) {
    return std::tie(key.entries, key.matched_end, key.align);
  };
  if (others(*this) != others(other)) return others(*this) < others(other);
  return std::ranges::lexicographical_compare(rows, other.rows, std::owner_less<>());
}

const CountedMatch* CountedMatches::find(const Key& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second.place);
  return &found->second.match;
}

void CountedMatches::add(Key key, const CountedMatch& match) {
  const std::size_t numbers = numbers_in(key, match);
  if (numbers > numbers_max_ / 8) return;
  const auto [at, is_new] = entries_.try_emplace(std::move(key));
  if (!is_new) return;  // two lookups counted it at the same time
  by_use_.push_front(&at->first);
  at->second = {match, numbers, by_use_.begin()};
  for (numbers_ += numbers; numbers_ > numbers_max_;) {
    const auto oldest = entries_.find(*by_use_.back());
    numbers_ -= oldest->second.numbers;
    by_use_.pop_back();
    entries_.erase(oldest);
  }
}

}  // namespace precis
