// Which entry of the hot tier goes first. A policy sees keys come, be used and go, and names the
// one it values least; the tier keeps the bytes and decides whether that one may go now.
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

// Not thread-safe: the tier calls it under its own lock. Each key added is removed exactly once.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual void added(const HotKey& key, std::size_t size_bytes) = 0;
  virtual void used(const HotKey& key) = 0;
  virtual void removed(const HotKey& key) = 0;
  // The key of least value for which `may_go` holds, and which is then removed; none if it holds
  // for no key.
  virtual std::optional<HotKey> victim(const std::function<bool(const HotKey&)>& may_go) = 0;
};

// Least recently used first.
std::unique_ptr<EvictionPolicy> make_lru_policy();
// Scan-resistant (s3_fifo_policy.cc).
std::unique_ptr<EvictionPolicy> make_s3_fifo_policy();

}  // namespace precis
