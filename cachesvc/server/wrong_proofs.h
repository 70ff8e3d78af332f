// Slows down who guesses tokens: after a few wrong proofs from one address for one tenant, each
// further attempt of the two must wait, twice as long each time. A right proof ends it. Addresses
// and tenants do not slow each other down. Used on the loop's thread.
#pragma once

#include <cstdint>
#include <list>
#include <string>

#include "cachesvc/base/clock.h"
#include "precis/status.h"

namespace precis {

class WrongProofs {
 public:
  explicit WrongProofs(const Clock& clock) : clock_(clock) {}

  // kRejected with the wait that is left. Asked before a proof is looked at, so that an attempt
  // during the wait tells nothing.
  Status may_try(const std::string& address, const std::string& tenant);
  void note(const std::string& address, const std::string& tenant, bool right);

 private:
  struct Row {
    std::string key;
    std::uint32_t wrong = 0;
    std::uint64_t wait_until_ns = 0;
  };
  Row* find(const std::string& key);

  const Clock& clock_;
  std::list<Row> rows_;  // the longest untouched first; of too many the least wrong goes
};

}  // namespace precis
