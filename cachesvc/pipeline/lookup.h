// Lookup: the longest stored prefix of a path, and its price.
#pragma once

#include <optional>
#include <string_view>

#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/path_hasher.h"
#include "cachesvc/pipeline/restore_rate.h"
#include "cachesvc/pipeline/tenant.h"
#include "cachesvc/store/hot_tier.h"
#include "precis/messages.h"

namespace precis {

class Lookup {
 public:
  Lookup(Catalog& catalog, PathHasher& paths, const HotTier& hot_tier, const RestoreRate& rate)
      : catalog_(catalog), paths_(paths), hot_tier_(hot_tier), rate_(rate) {}

  // kNotFound if the model is not registered; a Match of 0 tokens if nothing is stored. `from`
  // names the connection, whose turns a long path waits for.
  Task<Result<msg::Match>> run(const Tenant& tenant, msg::Lookup request, const void* from) const;

 private:
  // Any thread. None where something was removed meanwhile, so that it has to be matched again.
  std::optional<msg::Match> match(std::string_view tenant, const ModelSpec& model,
                                  const TokenPath& path) const;

  Catalog& catalog_;
  PathHasher& paths_;
  const HotTier& hot_tier_;
  const RestoreRate& rate_;
};

}  // namespace precis
