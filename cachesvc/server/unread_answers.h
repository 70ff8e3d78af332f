// A bound on the answers of all connections that their clients have not read yet.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "precis/status.h"

namespace precis {

// A connection, as one that reads its answers.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual const std::string& tenant() const = 0;
  virtual std::size_t unsent_bytes() const = 0;  // 0 from shed() on
  // Closes it, for `why`.
  virtual void shed(const std::string& why) = 0;
};

// An answer up to this size is sent in any case.
inline constexpr std::size_t kSmallAnswerBytes = 64u << 10;

// OK if an answer of `size_bytes` may be sent to a connection of `tenant`, so that no more than
// `bytes_max` wait to be read by `readers`. Else it is the tenant with most of them that has to do
// without: its connection with most is shed, or, where it is this tenant's own large answer that is
// too much, that is kRejected.
Status may_send(const std::vector<std::shared_ptr<Reader>>& readers, std::size_t bytes_max,
                const std::string& tenant, std::size_t size_bytes);

}  // namespace precis
