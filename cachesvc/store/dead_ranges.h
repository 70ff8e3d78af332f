// The dead byte ranges of a file. Adjacent ranges are one range.
#pragma once

#include <cstdint>
#include <map>

namespace precis {

class DeadRanges {
 public:
  // The range does not overlap an earlier one.
  void add(std::uint64_t offset, std::uint64_t size);
  // The range lies within one dead range.
  void remove(std::uint64_t offset, std::uint64_t size);
  void clear() { ranges_.clear(); }
  // As (offset, size), in order.
  auto begin() const { return ranges_.begin(); }
  auto end() const { return ranges_.end(); }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // offset -> size
};

}  // namespace precis
