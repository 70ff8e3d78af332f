// Lookups and gets of one connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>

#include "cachesvc/server/caller.h"

namespace precis {

class ReadRequests {
 public:
  using Served = std::function<Status(msg::LayerServed)>;
  ReadRequests(const Caller& caller, Served served) : caller_(caller), served_(std::move(served)) {}

  Task<Answer> on(msg::Lookup request);
  Task<Answer> on(std::uint64_t id, msg::Get request);
  Task<Answer> on(msg::Cancel request);
  void cancel();  // gets in progress stop at their next layer

 private:
  // Counts a lookup that has ended, and returns its labels. `model`: what its fingerprint names, if
  // it is registered.
  RequestLabels count(const Result<msg::Match>& match, const Result<ModelSpec>& model,
                      std::size_t tokens, Clock::Time began) const;
  // Names further nodes that serve the match, if it is hot.
  void tell_others(msg::Match& match) const;
  // Loads the rows that a get needs of another node's shard and that this node does not have.
  Task<Status> take_guests(const msg::Get& request) const;
  // Ends the span of a get. `first_served`: when its first layer was in place.
  void end_trace(Trace& trace, const GetPath::Get& get, std::optional<Clock::Time> first_served,
                 std::uint64_t tokens, const Result<msg::GetDone>& done) const;

  const Caller& caller_;
  const Served served_;
  std::uint32_t counting_ = 0;  // lookups in progress that count entries
  std::unordered_map<std::uint64_t, std::shared_ptr<GetPath::Get>> gets_;
};

}  // namespace precis
