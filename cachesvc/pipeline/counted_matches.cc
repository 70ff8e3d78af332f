#include "cachesvc/pipeline/counted_matches.h"

#include <utility>

namespace precis {

const CountedMatch* CountedMatches::find(const Key& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second.place);
  return &found->second.match;
}

void CountedMatches::add(Key key, CountedMatch match) {
  const std::size_t numbers = numbers_in(key);
  if (numbers > numbers_max_) return;
  while (numbers_ + numbers > numbers_max_) {
    const auto oldest = entries_.find(*by_use_.back());
    numbers_ -= numbers_in(oldest->first);
    by_use_.pop_back();
    entries_.erase(oldest);
  }
  const auto [at, is_new] = entries_.try_emplace(std::move(key));
  if (!is_new) return;  // counted by two lookups at the same time
  numbers_ += numbers;
  by_use_.push_front(&at->first);
  at->second = {std::move(match), by_use_.begin()};
}

// A match has as many counts as its rows, and a plan of one row's size.
std::size_t CountedMatches::numbers_in(const Key& key) {
  std::size_t numbers = 64;  // the entry itself
  for (const Catalog::Row& row : key.rows) numbers += 3 * row->plan.counts.size();
  return numbers;
}

}  // namespace precis
