// A Put as Python holds it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "arrays.h"
#include "gil.h"
#include "one_call.h"
#include "owned.h"
#include "precis/client.h"

namespace precis::python {

using OwnedClient = Owned<Client>;
using OwnedPrefix = Owned<Prefix>;

// The arrays of one push, whose memory they keep.
struct PushedArrays {
  AnyArray keys, values;
  std::optional<AnyArray> queries;
  std::optional<FloatArray> lse, scores, query_mean, query_covariance;

  // Raises InvalidArgument.
  LayerPush views(std::uint32_t head_begin, std::uint32_t token_begin) const;
};

// A Put and what it reads of Python's while pieces of it are under way. Its threads take turns.
class PutHandle {
 public:
  explicit PutHandle(Put put) : state_(std::make_unique<State>(std::move(put))) {}
  PutHandle(PutHandle&&) = default;
  // Pieces under way are called off, which waits. A forked child leaves them to its parent.
  ~PutHandle();

  const msg::PutBegun& begun() const {
    maker_.check();
    return state_->put->begun();
  }

  void layer(std::uint32_t layer, PushedArrays arrays, std::uint32_t head_begin,
             std::uint32_t token_begin, bool wait);
  // One that reads nothing of Python's once it has returned.
  void layer(std::uint32_t layer, const LayerPush& push, bool wait);
  // For all that waits for the pieces, or ends them.
  template <typename Call>
  auto settled(Call&& call) {
    maker_.check();
    const OneCall::In turn(state_->calls);
    auto outcome = without_gil([&] { return call(*state_->put); });
    let_go(0);
    return outcome;
  }

  // The same in two halves: the call, by a thread without the GIL, which keeps this alive by other
  // means, and letting go of arrays, with it.
  Result<msg::SegmentInfo> commit_without_gil(Durability durability);
  void let_go_if_idle();
  // Raises Unavailable in a forked child.
  void check_maker() const { maker_.check(); }

 private:
  struct State {
    explicit State(Put begun) : put(std::move(begun)) {}
    OneCall calls{"put"};
    std::deque<PushedArrays> held;  // the newest last; longer than the put, which may read them
    std::optional<Put> put;
  };

  void let_go(std::size_t left) {
    while (state_->held.size() > left) state_->held.pop_front();
  }

  Maker maker_;
  std::unique_ptr<State> state_;
};

}  // namespace precis::python
