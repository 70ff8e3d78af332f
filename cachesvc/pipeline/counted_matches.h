// The counts of matches that were counted lately, so that many questions about one document read
// its records once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "precis/catalog_row.h"
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
  // counts of what it was are never taken for those of what it is. A row that nobody else holds is
  // not kept alive.
  struct Key {
    std::vector<std::weak_ptr<const SegmentRow>> rows;  // of each link
    std::vector<std::uint64_t> entries;                 // the cut of each link
    std::uint32_t matched_end = 0;
    std::uint32_t align = 1;
    bool operator<(const Key& other) const;
  };

  // Keeps about 4 bytes for each of so many numbers.
  explicit CountedMatches(std::size_t numbers_max = std::size_t{1} << 21)
      : numbers_max_(numbers_max) {}

  // Null where it was not counted lately. Valid until the next call.
  const CountedMatch* find(const Key& key);
  // Drops what was found longest ago to make room. A match that would take more than an eighth of
  // all is not kept.
  void add(Key key, const CountedMatch& match);

 private:
  struct Entry {
    CountedMatch match;
    std::size_t numbers = 0;
    std::list<const Key*>::iterator place;
  };

  const std::size_t numbers_max_;
  std::size_t numbers_ = 0;
  std::map<Key, Entry> entries_;
  std::list<const Key*> by_use_;  // found last first
};

}  // namespace precis
