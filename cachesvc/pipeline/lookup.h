// Lookup: finds the longest stored prefix of a path, and its price (bytes and predicted seconds).
// For a request at a budget or in pages, it also counts exactly how many entries a reader gets.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/chain_layers.h"
#include "cachesvc/pipeline/counted_matches.h"
#include "cachesvc/pipeline/exact_counts.h"
#include "cachesvc/pipeline/path_hasher.h"
#include "cachesvc/pipeline/restore_rate.h"
#include "cachesvc/pipeline/tenant.h"
#include "precis/messages.h"

namespace precis {

class Lookup {
 public:
  // All must outlive this object.
  struct Parts {
    EventLoop& loop;
    FairExecutor& reads;  // counts
    PathHasher& paths;
    const RestoreRate& rate;
    const Clock& clock;
    ChainLayers::Parts layers;
  };
  explicit Lookup(const Parts& parts) : parts_(parts) {}

  // kNotFound if the model is not registered; a Match of 0 tokens if nothing is stored. `from`
  // identifies the connection; a long path waits for that connection's turns. Counting ends with
  // kCanceled once `gone` is true. The match is leased as requested if possible. For a request that
  // counts: kInvalidArgument for an invalid budget, kCorruption as for a get, kRejected if the
  // path's stored segments did not stay the same during the count. `shard`: of the request, in a
  // cluster.
  Task<Result<msg::Match>> run(const Tenant& tenant, msg::Lookup request, const void* from,
                               const bool& gone, std::optional<std::uint32_t> shard = {}) const;

 private:
  using Links = std::vector<Catalog::Link>;
  // `links` receives the matched segments.
  Task<Result<msg::Match>> find(const Tenant& tenant, msg::Lookup request, const void* from,
                                const bool& gone, std::optional<std::uint32_t> shard,
                                Links& links) const;
  // A match without its price.
  struct Described {
    msg::Match match;
    std::uint64_t cold_bytes = 0;    // not in memory
    std::uint64_t shared_bytes = 0;  // of cold_bytes, about those not on the disk either
  };
  // The two functions below run on any thread. None if a segment was removed or replaced meanwhile;
  // then the caller matches again.
  std::optional<msg::Match> match(std::string_view tenant, const ModelSpec& model,
                                  const Links& links) const;
  std::optional<Described> describe(std::string_view tenant, const ModelSpec& model,
                                    const Links& links) const;

  struct Counting;  // the counts of one match so far
  Task<Result<msg::Match>> count(Owner owner, const ModelSpec& model, const msg::Lookup& request,
                                 Links& links, const bool& gone) const;
  // None if a stored segment has changed meanwhile.
  Task<Result<std::optional<msg::Match>>> attempt(const Owner& owner, const ModelSpec& model,
                                                  const msg::Lookup& request, const Links& links,
                                                  const bool& gone) const;
  Task<Result<std::optional<CountedMatch>>> read_counts(const Owner& owner, const ModelSpec& model,
                                                        const Links& links,
                                                        const CountedMatches::Key& key,
                                                        const bool& gone) const;
  Task<Result<LayerCounts>> count_records(const Counting& counting,
                                          const ChainLayers::Leases& leases, std::uint32_t layer,
                                          std::size_t& inline_left, const Owner& owner) const;

  const Parts parts_;
  mutable CountedMatches counted_;  // used on the loop only
};

}  // namespace precis
