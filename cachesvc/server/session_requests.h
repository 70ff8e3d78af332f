// Requests about sessions.
#pragma once

#include "cachesvc/server/caller.h"

namespace precis {

class SessionRequests {
 public:
  explicit SessionRequests(const Caller& caller)
      : caller_(caller), catalog_(caller.parts.catalog), tenant_(caller.tenant.name) {}

  Task<Answer> on(msg::OpenSession request);
  Task<Answer> on(msg::AdvanceSession request);
  Task<Answer> on(msg::PinSession request);
  Task<Answer> on(msg::ForkSession request);
  Task<Answer> on(msg::ShowSession request);
  Task<Answer> on(msg::ListSessions request);
  Task<Answer> on(msg::RemoveSession request);

 private:
  // The tip of a session, or none if there is no such session.
  std::optional<std::string> tip_of(const std::string& session) const;
  Status not_advanced(const msg::AdvanceSession& request, Status failed) const;
  void trim(const msg::SessionRow& row) const;
  Task<Status> end_former_budget(std::string name) const;

  const Caller& caller_;
  Catalog& catalog_;
  const std::string& tenant_;
};

}  // namespace precis
