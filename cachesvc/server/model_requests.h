// Requests about models, their projections and their profiles.
#pragma once

#include "cachesvc/server/caller.h"

namespace precis {

class ModelRequests {
 public:
  explicit ModelRequests(const Caller& caller)
      : caller_(caller), catalog_(caller.parts.catalog), tenant_(caller.tenant.name) {}

  Task<Answer> on(msg::RegisterModel request);
  Task<Answer> on(msg::ListModels request);
  Task<Answer> on(msg::RemoveModel request);
  Task<Answer> on(msg::PushProjection request);
  Task<Answer> on(msg::AddProfile request);
  Task<Answer> on(msg::ListProfiles request);
  Task<Answer> on(msg::ShowProfile request);
  Task<Answer> on(msg::RemoveProfile request);

 private:
  void add_hits(msg::ModelRow& row) const;

  const Caller& caller_;
  Catalog& catalog_;
  const std::string& tenant_;
};

}  // namespace precis
