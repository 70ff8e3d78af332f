// Lookup: the longest stored prefix of a path, its price, and, where it is asked for at a budget or
// in pages, how many entries of it a reader gets, exactly.
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
  // All outlive it.
  struct Parts {
    EventLoop& loop;
    FairExecutor& reads;  // counts
    PathHasher& paths;
    const RestoreRate& rate;
    ChainLayers::Parts layers;
  };
  explicit Lookup(const Parts& parts) : parts_(parts) {}

  // kNotFound if the model is not registered; a Match of 0 tokens if nothing is stored. `from`
  // names the connection, whose turns a long path waits for; counting ends once it is `gone`.
  // The match is leased as asked, where it can be.
  // Of a request that counts: kInvalidArgument for a budget that is none, kCorruption as a get,
  // kRejected where what is stored of the path did not stay the same for as long as it takes.
  Task<Result<msg::Match>> run(const Tenant& tenant, msg::Lookup request, const void* from,
                               const bool& gone) const;

 private:
  using Links = std::vector<Catalog::Link>;
  // `links` are what the match is of.
  Task<Result<msg::Match>> find(const Tenant& tenant, msg::Lookup request, const void* from,
                                const bool& gone, Links& links) const;
  // A match without its price.
  struct Described {
    msg::Match match;
    std::uint64_t cold_bytes = 0;
  };
  // Any thread, both. None where something was removed meanwhile, so that it has to be matched
  // again.
  std::optional<msg::Match> match(std::string_view tenant, const ModelSpec& model,
                                  const Links& links) const;
  std::optional<Described> describe(std::string_view tenant, const ModelSpec& model,
                                    const Links& links) const;

  struct Counting;  // of one match, as far as it has come
  Task<Result<msg::Match>> count(Owner owner, const ModelSpec& model, const msg::Lookup& request,
                                 Links& links, const bool& gone) const;
  // None where what is stored has changed meanwhile.
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
  mutable CountedMatches counted_;  // asked on the loop alone
};

}  // namespace precis
