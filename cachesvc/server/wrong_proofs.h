// Slows down who guesses tokens: after a few wrong proofs from one address for one tenant, each
// further attempt of the two must wait, twice as long each time. A right proof ends it, and so does
// a long time without a wrong one. Addresses and tenants do not slow each other down. Used on the
// loop's thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

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
  void forget(const std::string& tenant);

 private:
  struct Row {
    std::uint32_t wrong = 0;
    std::uint64_t wait_until_ns = 0, last_ns = 0;  // of the last wrong proof
    bool exists = false;                           // the tenant does
  };
  using Rows = std::unordered_map<std::string, Row>;  // by address and tenant
  using Worth = std::tuple<bool, std::uint32_t, const std::string*>;
  static Worth worth(const Rows::value_type& entry);
  Row take_out(Rows::iterator at);
  void put_in(const std::string& key, const Row& row);
  std::uint32_t make_room(std::uint64_t now);

  const Clock& clock_;
  Rows rows_;  // limits::kWrongProofRowsMax
  // The same rows: first whose last wrong proof is longest ago, and first what protects least.
  std::set<std::pair<std::uint64_t, const std::string*>> by_age_;
  std::set<Worth> by_worth_;
};

}  // namespace precis
