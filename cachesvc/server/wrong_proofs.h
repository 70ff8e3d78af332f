// Slows down who guesses tokens: after a few wrong proofs from one address for one tenant, each
// further attempt of the two must wait, twice as long each time. A right proof ends it, and so does
// a long time without a wrong one. Addresses and tenants do not slow each other down. Used on the
// loop's thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "cachesvc/base/clock.h"
#include "precis/status.h"

namespace precis {

class WrongProofs {
 public:
  explicit WrongProofs(const Clock& clock) : clock_(clock) {}

  enum class Proof { kRight, kWrong, kOfUnknownTenant };

  // `tenant`: by the name under which it is configured, however a client calls it.
  // kRejected with the wait that is left. Asked before a proof is looked at, so that an attempt
  // during the wait tells nothing.
  Status may_try(const std::string& address, const std::string& tenant) const;
  void note(const std::string& address, const std::string& tenant, Proof proof);
  // Ends the waits of a tenant at all addresses: its token is another.
  void forget(const std::string& tenant) {
    std::erase_if(rows_, [&](const auto& row) { return row.first.ends_with("\n" + tenant); });
  }

 private:
  struct Row {
    std::uint32_t wrong = 0;
    std::uint64_t wait_until_ns = 0, last_ns = 0;  // of the last wrong proof
    bool exists = false;                           // the tenant does
  };
  using Rows = std::unordered_map<std::string, Row>;
  bool is_old(const Row& row) const;
  std::uint32_t make_room();

  const Clock& clock_;
  Rows rows_;  // by address and tenant; limits::kWrongProofRowsMax
};

}  // namespace precis
