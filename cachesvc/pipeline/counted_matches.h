// The counts of matches that were counted lately, so that many questions about one document read
// its records once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "precis/messages.h"

namespace precis {

// The entries of each (layer, head) that a match at a cut brings.
struct CountedMatch {
  std::vector<std::vector<std::uint32_t>> counts;  // [num_links][num_layers * num_kv_heads]
  Plan plan;
  std::uint64_t bytes = 0;
};

// Called by one thread.
class CountedMatches {
 public:
  // What the counts follow from. A segment that is trimmed or put anew has another row, so that
  // counts of what it was are never taken for those of what it is.
  struct Key {
    std::vector<Catalog::Row> rows;      // of each link
    std::vector<std::uint64_t> entries;  // the cut of each link
    std::uint32_t matched_end = 0;
    std::uint32_t align = 1;
    auto operator<=>(const Key&) const = default;
  };

  // Keeps at most so many numbers, those of the rows included.
  explicit CountedMatches(std::size_t numbers_max = std::size_t{1} << 21)
      : numbers_max_(numbers_max) {}

  // Null where it was not counted lately. Valid until the next call.
  const CountedMatch* find(const Key& key);
  // Drops what was found longest ago to make room; does nothing where the match alone is too large.
  void add(Key key, CountedMatch match);

 private:
  struct Entry {
    CountedMatch match;
    std::list<const Key*>::iterator place;
  };
  static std::size_t numbers_in(const Key& key);

  const std::size_t numbers_max_;
  std::size_t numbers_ = 0;
  std::map<Key, Entry> entries_;
  std::list<const Key*> by_use_;  // found last first
};

}  // namespace precis
