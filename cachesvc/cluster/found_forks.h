// The forks that a node has found and that etcd does not have yet. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "cachesvc/cluster/fork_finder.h"
#include "precis/shards.h"

namespace precis::cluster {

class FoundForks {
 public:
  explicit FoundForks(std::uint64_t seed) : finder_(seed) {}

  // Counts a put whose deciding block is no fork.
  void note(const std::string& tenant, const ForkFinder::Put& put);
  // Returns those found since the last call.
  Forks take();

 private:
  std::mutex mutex_;  // guards all below
  ForkFinder finder_;
  Forks found_;
  std::map<std::string, std::size_t> found_of_;  // how many, by tenant
};

// The forks with those that were found, as far as there is room. Older ones stay as they are.
Forks with_found(Forks forks, const Forks& found);

}  // namespace precis::cluster
