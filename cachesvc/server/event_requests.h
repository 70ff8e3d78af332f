// Requests for the events of stored segments.
#pragma once

#include "cachesvc/server/caller.h"

namespace precis {

class EventRequests {
 public:
  explicit EventRequests(const Caller& caller) : caller_(caller) {}

  Task<Answer> on(msg::ListEvents request);

 private:
  const Caller& caller_;
};

}  // namespace precis
