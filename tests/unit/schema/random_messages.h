// Random valid content for every message and row, determined by one seed.
#pragma once

#include <cstdint>
#include <random>

#include "precis/catalog_row.h"
#include "precis/greeting.h"
#include "precis/messages.h"

namespace precis::testing {

inline constexpr std::size_t kRequestKinds = std::variant_size_v<msg::RequestBody>;
inline constexpr std::size_t kReplyKinds = std::variant_size_v<msg::ReplyBody>;

class RandomMessages {
 public:
  explicit RandomMessages(std::uint64_t seed) : random_(seed) {}

  Challenge challenge();
  Hello hello();
  Welcome welcome();
  Bind bind();
  RdmaTurn rdma_turn(bool with_window);
  msg::Request request(std::size_t kind);      // kind < kRequestKinds
  msg::ServerMessage reply(std::size_t kind);  // kind < kReplyKinds
  msg::ServerMessage layer_served();
  SegmentRow segment_row();
  StoredSession stored_session();
  StoredModel stored_model();
  StoredBudget stored_budget();
  StoredProjection stored_projection();
  StoredProfile stored_profile();
  StoredRevision stored_revision();
  StoredTenant stored_tenant();

  std::uint64_t number(std::uint64_t max);  // [0, max]
  std::vector<std::byte> bytes(std::size_t count);

 private:
  friend struct Filler;
  std::mt19937_64 random_;
};

}  // namespace precis::testing
