#include "tests/simulate/cluster/workload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "precis/mixed.h"

namespace precis::simulate {
namespace {

// Stands in for SHA-256, which would take most of the time: SplitMix64 of the names, in turn.
Digest digest_of(std::uint64_t tenant, std::uint64_t copy, std::uint64_t block) {
  std::uint64_t state = 0;
  for (const std::uint64_t name : {tenant, copy, block}) state = cluster::mixed(state + name);
  Digest digest;
  for (std::size_t at = 0; at < digest.bytes.size(); at += sizeof state, ++state) {
    std::memcpy(digest.bytes.data() + at, &state, sizeof state);
  }
  return digest;
}

std::uint32_t common_blocks(const std::vector<Prompt>& prompts) {
  std::size_t common = prompts.front().size();
  for (const Prompt& prompt : prompts) {
    const auto limit = std::min(common, prompt.size());
    const auto differ = std::mismatch(prompt.begin(), prompt.begin() + std::ptrdiff_t(limit),
                                      prompts.front().begin());
    common = static_cast<std::size_t>(differ.first - prompt.begin());
  }
  return static_cast<std::uint32_t>(common);
}

}  // namespace

Workload::Workload(const Conversations& conversations, std::uint64_t prefixes,
                   std::uint32_t tenants)
    : system_blocks_(std::max(1U, common_blocks(conversations.prompts))) {
  std::vector<std::uint32_t> group_of(conversations.blocks);  // by block id; from 1
  std::vector<bool> met(conversations.blocks);
  std::set<std::uint32_t> ends;
  for (const Prompt& prompt : conversations.prompts) {
    ends.insert(prompt.back());
    Load* load = &short_requests_;
    if (prompt.size() > system_blocks_) {
      std::uint32_t& group = group_of[prompt[system_blocks_]];
      if (group == 0) {
        groups_.push_back({prompt[system_blocks_], {}});
        group = static_cast<std::uint32_t>(groups_.size());
      }
      load = &groups_[group - 1].load;
    }
    load->read += static_cast<double>(prompt.size());
    for (std::size_t k = system_blocks_; k < prompt.size(); ++k) {
      if (!met[prompt[k]]) load->stored += 1;
      met[prompt[k]] = true;
    }
  }
  prefixes_per_copy_ = ends.size();
  const std::uint64_t wanted = (prefixes + ends.size() - 1) / ends.size();
  double weights = 0;
  for (std::uint32_t t = 1; t <= tenants; ++t) weights += 1.0 / t;
  for (std::uint32_t t = 1; t <= tenants; ++t) {
    const auto share = std::llround(static_cast<double>(wanted) / t / weights);
    copies_of_.push_back(std::max<std::uint64_t>(1, static_cast<std::uint64_t>(share)));
    copies_ += copies_of_.back();
  }
}

Digest Workload::system_prompt(std::uint32_t tenant) const { return digest_of(tenant, 0, 0); }

Load Workload::total() const {
  Load copy = short_requests_;
  for (const Group& group : groups_) {
    copy.stored += group.load.stored;
    copy.read += group.load.read;
  }
  const auto copies = static_cast<double>(copies_);
  const auto prompts = static_cast<double>(system_blocks_ * copies_of_.size());
  return {copy.stored * copies + prompts, copy.read * copies};
}

Forks Workload::forks(double most) const {
  double copy = 0;
  for (const Group& group : groups_) copy += group.load.stored;
  Forks forks;
  for (std::uint32_t tenant = 0; tenant < copies_of_.size(); ++tenant) {
    if (copy * static_cast<double>(copies_of_[tenant]) <= most) continue;
    forks[system_prompt(tenant)] = system_blocks_ + 1;
  }
  return forks;
}

std::vector<Load> Workload::shard_loads(const Forks& forks, std::uint32_t shards) const {
  std::vector<Load> loads(shards);
  std::vector<Digest> path(system_blocks_ + 1);
  for (std::uint32_t tenant = 0; tenant < copies_of_.size(); ++tenant) {
    std::vector<bool> has_prompt(shards);
    const auto add = [&](std::span<const Digest> blocks, const Load& load) {
      const auto block = [&](std::size_t k) { return blocks[k]; };
      const std::uint32_t shard = shard_of(deciding_block(blocks.size(), block, forks)) % shards;
      loads[shard].stored += load.stored + (has_prompt[shard] ? 0 : system_blocks_);
      loads[shard].read += load.read;
      has_prompt[shard] = true;
    };
    path.front() = system_prompt(tenant);  // the other blocks of the system prompt decide nothing
    for (std::uint64_t copy = 1; copy <= copies_of_[tenant]; ++copy) {
      add(std::span(path).first(system_blocks_), short_requests_);
      for (const Group& group : groups_) {
        path.back() = digest_of(tenant, copy, group.block);
        add(path, group.load);
      }
    }
  }
  return loads;
}

}  // namespace precis::simulate
