// Chooses the hot tier's next victim. A policy is told when keys are added, used and removed, and
// names the key that it values least. The tier keeps the bytes and decides whether that key may be
// evicted now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "precis/types.h"

namespace precis {

// One layer of one segment.
struct HotKey {
  SegmentId segment;
  std::uint32_t layer = 0;
  auto operator<=>(const HotKey&) const = default;
};

// Not thread-safe: the tier calls it under its own lock, so in production a call takes a few steps
// on average, however many keys may not go. Each added key is removed exactly once. A tenant with a
// limit has a policy of its own. It begins with the keys that the tier has then, and is not told of
// their earlier uses.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual void added(const HotKey& key, std::size_t size_bytes) = 0;
  // A reader has found the key, or it was added again.
  virtual void used(const HotKey& key) = 0;
  virtual void removed(const HotKey& key) = 0;
  // The least valuable key for which `may_go` is true; none if there is none. The caller then
  // removes that key.
  virtual std::optional<HotKey> victim(const std::function<bool(const HotKey&)>& may_go) = 0;
};

// Scan-resistant (s3_fifo_policy.cc).
std::unique_ptr<EvictionPolicy> make_s3_fifo_policy();

}  // namespace precis
