// A cache of the counts of recent matches, so that many questions about one document read its
// records once.
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

// The entries of each (layer, head) that a match at a cut returns.
struct CountedMatch {
  std::vector<std::vector<std::uint32_t>> counts;  // [num_links][num_layers * num_kv_heads]
  Plan plan;
  std::uint64_t bytes = 0;
};

// For one thread only.
class CountedMatches {
 public:
  // The inputs of the counts. A segment that was trimmed or put again has another row, so its old
  // counts are not found. A key does not keep rows alive.
  struct Key {
    std::vector<std::weak_ptr<const SegmentRow>> rows;  // of each link
    std::vector<std::uint64_t> entries;                 // the cut of each link
    std::uint32_t matched_end = 0;
    std::uint32_t align = 1;
    bool operator<(const Key& other) const;
  };

  // Keeps at most this many numbers, of about 4 bytes each.
  explicit CountedMatches(std::size_t numbers_max = std::size_t{1} << 21)
      : numbers_max_(numbers_max) {}

  // Null if the match was not counted recently. Valid until the next call.
  const CountedMatch* find(const Key& key);
  // Evicts the least recently found matches to make room. A match that would take more than an
  // eighth of the limit is not kept.
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
  std::list<const Key*> by_use_;  // the most recently found first
};

}  // namespace precis
