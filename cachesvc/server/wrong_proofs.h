// Slows down clients that guess tokens. After a few wrong proofs from one address for one tenant,
// each further attempt of that pair must wait, twice as long each time. A right proof ends the
// wait, and so does a long time without a wrong one. Other addresses and tenants are not affected.
// Used on the loop's thread.
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

  // `tenant`: the configured name, however a client writes it. kPermissionDenied with the remaining
  // wait. Call it before checking a proof, so that an attempt during the wait reveals nothing.
  Status may_try(const std::string& address, const std::string& tenant) const;
  void note(const std::string& address, const std::string& tenant, Proof proof);
  // Ends the waits of a tenant at all addresses: its token has changed.
  void erase(const std::string& tenant);

 private:
  struct Row {
    std::uint32_t wrong = 0;
    std::uint64_t wait_until_ns = 0, last_ns = 0;  // last_ns: of the last wrong proof
    bool exists = false;                           // whether the tenant exists
  };
  using Rows = std::unordered_map<std::string, Row>;  // by address and tenant
  using Worth = std::tuple<bool, std::uint32_t, const std::string*>;
  static Worth worth(const Rows::value_type& entry);
  Row take_out(Rows::iterator at);
  void put_in(const std::string& key, const Row& row);
  std::uint32_t make_room(std::uint64_t now);

  const Clock& clock_;
  Rows rows_;  // at most limits::kWrongProofRowsMax
  // The same rows: by_age_ begins with the oldest last wrong proof, by_worth_ with the least useful
  // row.
  std::set<std::pair<std::uint64_t, const std::string*>> by_age_;
  std::set<Worth> by_worth_;
};

}  // namespace precis
