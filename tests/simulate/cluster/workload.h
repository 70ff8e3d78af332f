// The prompts that a large service stores and reads, and how many of them each shard holds.
#pragma once

#include <cstdint>
#include <vector>

#include "precis/shards.h"
#include "tests/simulate/cluster/conversations.h"

namespace precis::simulate {

// In blocks. Stored blocks differ from each other; a request reads all blocks of its prompt.
struct Load {
  double stored = 0, read = 0;
};

// Copies of the conversations of one service, distributed over tenants by Zipf's law. All copies of
// a tenant begin with the same blocks: its system prompt.
class Workload {
 public:
  // Makes as many copies as give at least `prefixes` different prompts, and at least one for each
  // tenant.
  Workload(const Conversations& conversations, std::uint64_t prefixes, std::uint32_t tenants);

  // The forks that a cluster makes so that no deciding block holds more than `most` stored blocks.
  // A conversation stays whole.
  Forks forks(double most) const;
  // The load of each of `shards` shards (a divisor of kShards). A shard stores the beginning of
  // its paths, also where other shards store the same.
  std::vector<Load> shard_loads(const Forks& forks, std::uint32_t shards) const;
  // The load of all shards, if each block were stored once.
  Load total() const;
  std::uint64_t prefixes() const { return prefixes_per_copy_ * copies_; }

 private:
  // The requests of a copy that have the same block after the system prompt.
  struct Group {
    std::uint32_t block = 0;
    Load load;  // stored: without the system prompt
  };
  Digest system_prompt(std::uint32_t tenant) const;

  std::vector<Group> groups_;
  Load short_requests_;  // of a copy; they end with the system prompt
  std::uint32_t system_blocks_ = 0;
  std::uint64_t prefixes_per_copy_ = 0, copies_ = 0;
  std::vector<std::uint64_t> copies_of_;  // by tenant
};

}  // namespace precis::simulate
