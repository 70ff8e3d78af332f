// Requests about stored segments: list, show, remove, check, trim and retention.
#pragma once

#include "cachesvc/server/caller.h"

namespace precis {

class PrefixRequests {
 public:
  explicit PrefixRequests(const Caller& caller)
      : caller_(caller), catalog_(caller.parts.catalog), tenant_(caller.tenant.name) {}

  Task<Answer> on(msg::ListPrefixes request);
  Task<Answer> on(msg::FindPrefix request);
  Task<Answer> on(msg::ShowPrefix request);
  Task<Answer> on(msg::RemovePrefix request);
  Task<Answer> on(msg::CheckPrefix request);
  Task<Answer> on(msg::TrimPrefix request);
  Task<Answer> on(msg::SetRetention request);

 private:
  const Caller& caller_;
  Catalog& catalog_;
  const std::string& tenant_;
};

}  // namespace precis
