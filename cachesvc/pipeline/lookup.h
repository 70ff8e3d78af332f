// Lookup: the longest stored prefix of a path, and its price.
#pragma once

#include <span>
#include <vector>

#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/path_digests.h"
#include "cachesvc/pipeline/restore_rate.h"
#include "cachesvc/store/hot_tier.h"
#include "precis/messages.h"

namespace precis {

class Lookup {
 public:
  Lookup(Catalog& catalog, PathDigests& paths, const HotTier& hot_tier, const RestoreRate& rate)
      : catalog_(catalog), paths_(paths), hot_tier_(hot_tier), rate_(rate) {}

  // kNotFound if the model is not registered; a Match of 0 tokens if nothing is stored.
  Result<msg::Match> run(std::string_view tenant, std::string_view salt,
                         const msg::Lookup& request) const;

 private:
  Catalog& catalog_;
  PathDigests& paths_;
  const HotTier& hot_tier_;
  const RestoreRate& rate_;
};

}  // namespace precis
