// What stands behind a Prefix: one get, and another where that one found the connection lost or the
// service busy. A layer that arrived stays where it is; the next attempt is read for the others.
// Attempts are driven by the threads that wait for layers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "client/src/get_state.h"
#include "client/src/link.h"
#include "precis/client.h"

namespace precis {

struct Prefix::Impl {
  // Sends the get; layers are on their way when this returns.
  static Result<std::shared_ptr<Impl>> begin(const std::shared_ptr<Link>& link,
                                             const CallOptions& options, const LookupMatch& match,
                                             const Budget& keep);

  Impl(std::shared_ptr<Link> way, const CallOptions& options, GetPlan what);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // As Prefix's.
  Status wait_layer(std::uint32_t layer);
  Status wait();
  // The first attempt in which the layer arrived, else the last one.
  const GetState& holder(std::uint32_t layer);
  const GetState& last();

  const GetPlan plan;

 private:
  struct Attempt {
    std::shared_ptr<Channel> channel;  // lives as long as any handle on it
    std::shared_ptr<GetState> state;   // after it: its buffer belongs to the channel's pool
    std::uint64_t request = 0;
  };
  Result<Attempt> ask();  // once
  Status start();         // until it is under way, or there is no point
  // After attempt number `failed` ended with `why`: OK once another is there to be waited for.
  Status again(std::size_t failed, const Status& why);
  std::pair<std::size_t, std::shared_ptr<GetState>> newest();

  const std::shared_ptr<Link> link_;  // shared with the client and its other handles
  std::mutex retrying_;               // over retry_, and held while one thread tries again
  Retry retry_;
  std::mutex mutex_;
  std::vector<Attempt> attempts_;  // guarded by mutex_; at least one, once begun
};

}  // namespace precis
