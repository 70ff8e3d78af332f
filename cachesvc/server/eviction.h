// Makes room in a node's local store: removes copies of payload that the shared storage has.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cachesvc/base/executor.h"
#include "cachesvc/base/runtime.h"
#include "cachesvc/catalog/shard_catalog.h"
#include "cachesvc/shared/shared_tier.h"

namespace precis {

class Eviction {
 public:
  // All outlive it.
  struct Parts {
    SharedTier& tier;
    ShardCatalog& catalog;
    Runtime& runtime;
    std::string disk;  // names the local store, as in marks
  };
  explicit Eviction(Parts parts);
  ~Eviction() { stop(); }
  Eviction(const Eviction&) = delete;
  Eviction& operator=(const Eviction&) = delete;

  struct Done {
    std::uint64_t segments = 0, bytes = 0;
    Status problem;  // why no more was removed
  };
  // [blocking] Frees so many bytes, as far as the shared storage has copies: first in shards that
  // are neither loaded nor `own`, then the least recently used. Before it removes segments, it
  // reads their rows in the shared storage. `freed` is called after each step. One call at a time.
  Done run(std::uint64_t bytes, const std::vector<bool>& own, const std::function<void()>& freed);
  // Any thread. Ends run() soon, also later ones.
  void stop() { stopped_ = true; }

 private:
  using Evictable = ShardCatalog::Evictable;
  // Asks the shared storage about these segments.
  Status ask(std::vector<Evictable>& segments, const std::vector<bool>& own);
  Status ask_of(std::uint32_t shard, std::span<Evictable* const> segments, bool is_own);

  const Parts parts_;
  std::atomic<bool> stopped_ = false;
  std::unique_ptr<Executor> threads_;  // the last: it ends first
};

}  // namespace precis
