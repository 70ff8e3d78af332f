// A Put for Python.
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

// The arrays of one push; keeps their memory alive.
struct PushedArrays {
  AnyArray keys, values;
  std::optional<AnyArray> queries;
  std::optional<FloatArray> lse, scores, query_mean, query_covariance;

  // Raises InvalidArgument.
  LayerPush views(std::uint32_t head_begin, std::uint32_t token_begin) const;
};

// A Put, with the Python arrays that its pieces in flight read. Concurrent calls run one by one.
class PutHandle {
 public:
  explicit PutHandle(Put put) : state_(std::make_unique<State>(std::move(put))) {}
  PutHandle(PutHandle&&) = default;
  // Cancels the pieces in flight and waits until they have ended. A forked child leaves them to its
  // parent.
  ~PutHandle();

  const msg::PutBegun& begun() const {
    maker_.check();
    return state_->put->begun();
  }

  void layer(std::uint32_t layer, PushedArrays arrays, std::uint32_t head_begin,
             std::uint32_t token_begin, bool wait);
  // A push that reads no Python memory after it has returned.
  void layer(std::uint32_t layer, const LayerPush& push, bool wait);
  // Runs a call after which no piece is in flight, and releases the arrays.
  template <typename Call>
  auto settled(Call&& call) {
    maker_.check();
    const OneCall::In turn(state_->calls);
    auto outcome = without_gil([&] { return call(*state_->put); });
    release_arrays(0);
    return outcome;
  }

  // The same for commit in two steps: the call, on a thread without the GIL, whose caller keeps
  // this object alive; and, with the GIL, releasing the arrays.
  Result<msg::SegmentInfo> commit_without_gil(Durability durability);
  void release_arrays_if_idle();
  // Raises Unavailable in a forked child.
  void check_maker() const { maker_.check(); }

 private:
  struct State {
    explicit State(Put begun) : put(std::move(begun)) {}
    OneCall calls{"put"};
    std::deque<PushedArrays> held;  // newest last; outlives the put, which may read them
    std::optional<Put> put;
  };

  void release_arrays(std::size_t left) {
    while (state_->held.size() > left) state_->held.pop_front();
  }

  Maker maker_;
  std::unique_ptr<State> state_;
};

}  // namespace precis::python
