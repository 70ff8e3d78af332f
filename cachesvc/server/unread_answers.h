// A limit on the unread answers of all connections together.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis {

// A connection whose client reads answers.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual const std::string& tenant() const = 0;
  virtual std::size_t unsent_bytes() const = 0;  // 0 after disconnect()
  // Closes the connection, for the reason `why`.
  virtual void disconnect(const std::string& why) = 0;
};

// An answer up to this size is never rejected.
inline constexpr std::size_t kSmallAnswerBytes = 64u << 10;

// OK if an answer of `size_bytes` may be sent to a connection of `tenant`: at most `bytes_max` may
// wait to be read by all `readers`. Past that, the tenant with the most unread bytes must yield. If
// that tenant is `tenant` and this answer is large, the answer is kRejected. Otherwise that
// tenant's connection with the most unread bytes is disconnected.
Status may_send(const std::vector<std::shared_ptr<Reader>>& readers, std::size_t bytes_max,
                const std::string& tenant, std::size_t size_bytes);

}  // namespace precis
