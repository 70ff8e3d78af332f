// Segments of shards that other nodes hold, which this node serves too (hot prefixes). Each is
// served to new gets until its time, then it stays for gets in progress, and is forgotten a while
// later. Their number and memory are bounded: the tenant with the most loses the oldest.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "precis/catalog_row.h"

namespace precis {

class GuestSegments {
 public:
  using Row = std::shared_ptr<const SegmentRow>;
  struct Bounds {
    std::size_t segments = 4096;
    std::uint64_t bytes = std::uint64_t{64} << 20;
  };
  GuestSegments() : GuestSegments(Bounds()) {}
  explicit GuestSegments(Bounds bounds) : bounds_(bounds) {}

  // Serves a segment until that time. A version that is known already stays the same row.
  void keep(SegmentRow row, std::uint64_t until_ns, std::uint64_t now_ns);
  // Null if the tenant has no such segment, or its time has passed.
  Row find(std::string_view tenant, const SegmentId& id, std::uint64_t now_ns) const;
  // Whether it is one of these rows, although its time may have passed.
  bool knows(const SegmentRow& row) const;
  // Forgets those whose time passed a while ago. Returns them, and those that made room for others
  // since the last call.
  std::vector<SegmentId> end(std::uint64_t now_ns);

 private:
  struct Guest {
    Row row;
    std::uint64_t until_ns = 0;
  };
  struct GuestsOfTenant {
    std::set<std::pair<std::uint64_t, SegmentId>> by_time;
    std::uint64_t bytes = 0;
  };
  // Callers hold mutex_ for the functions below.
  void add(Row row, std::uint64_t until_ns);
  void forget(const SegmentId& id);
  void make_room(std::uint64_t now_ns);

  const Bounds bounds_;
  mutable std::mutex mutex_;  // guards the rest
  std::map<SegmentId, Guest> guests_;
  std::map<std::string, GuestsOfTenant, std::less<>> tenants_;
  std::uint64_t bytes_ = 0;
  std::vector<SegmentId> yielded_;
};

}  // namespace precis
