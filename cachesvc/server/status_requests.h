// Requests about the service itself.
#pragma once

#include "cachesvc/server/caller.h"

namespace precis {

class StatusRequests {
 public:
  explicit StatusRequests(const Caller& caller) : caller_(caller) {}

  Task<Answer> on(msg::GetStats request);
  Task<Answer> on(msg::GetStatus request);
  // Answers a keep-alive that clients send while they wait. It refers to no object, so it looks
  // nothing up.
  static Task<Answer> on(msg::Ping request);

 private:
  const Caller& caller_;
};

}  // namespace precis
