#include "put_handle.h"

#include "errors.h"

namespace precis::python {

LayerPush PushedArrays::views(std::uint32_t head_begin, std::uint32_t token_begin) const {
  LayerPush push;
  push.keys = heads_view(keys, "keys");
  push.values = heads_view(values, "values");
  if (queries) push.queries = heads_view(*queries, "queries");
  push.lse = float_view(lse);
  push.scores = float_view(scores);
  push.head_begin = head_begin;
  push.token_begin = token_begin;
  push.query_mean = float_view(query_mean);
  push.query_covariance = float_view(query_covariance);
  return push;
}

PutHandle::~PutHandle() {
  if (!state_) return;
  if (maker_.is_this_process()) {
    without_gil([this] { state_->put.reset(); });
  } else {
    state_.release();
  }
}

void PutHandle::layer(std::uint32_t layer, PushedArrays arrays, std::uint32_t head_begin,
                      std::uint32_t token_begin, bool wait) {
  maker_.check();
  const LayerPush push = arrays.views(head_begin, token_begin);  // may throw
  const OneCall::In turn(state_->calls);
  state_->held.push_back(std::move(arrays));
  const Status status = without_gil([&]() -> Status {
    return wait ? state_->put->layer(layer, push) : state_->put->start_layer(layer, push);
  });
  release_arrays(wait || !status.ok() ? 0 : Put::kLayersAheadMax);
  check(status);
}

void PutHandle::layer(std::uint32_t layer, const LayerPush& push, bool wait) {
  maker_.check();
  const OneCall::In turn(state_->calls);
  const Status status = without_gil([&]() -> Status {
    return wait ? state_->put->layer(layer, push) : state_->put->start_layer(layer, push);
  });
  if (wait || !status.ok()) release_arrays(0);
  check(status);
}

Result<msg::SegmentInfo> PutHandle::commit_without_gil(Durability durability) {
  if (!state_->calls.enter_without_gil()) {
    return Status::canceled("put: interrupted while it waited for another thread's call");
  }
  auto outcome = state_->put->commit(durability);
  state_->calls.leave();
  return outcome;
}

void PutHandle::release_arrays_if_idle() {
  if (!state_->calls.try_enter()) return;  // the thread that is in a call releases the arrays
  release_arrays(0);
  state_->calls.leave();
}

}  // namespace precis::python
