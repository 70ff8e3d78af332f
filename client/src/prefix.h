// The implementation of a Prefix: one get, which is attempted again if the connection is lost or
// the service busy. A layer that was handed out to the caller keeps its memory. The next attempt
// brings the other layers, and must serve the same rows for the layers that were handed out. The
// threads that wait for layers start the new attempts.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "client/src/get_state.h"
#include "client/src/nodes.h"
#include "client/src/page_sink.h"
#include "precis/client.h"

namespace precis {

struct Prefix::Impl {
  // Sends the get; layers are on their way when this returns.
  static Result<std::shared_ptr<Impl>> begin(const std::shared_ptr<Nodes>& nodes,
                                             const CallOptions& call, const LookupMatch& match,
                                             const Budget& keep, const GetOptions& options,
                                             PageMovers& movers);

  Impl(std::shared_ptr<Nodes> connections, const CallOptions& options, Target target, GetPlan what,
       std::span<const LayerOut> out, std::optional<PageSink> pages);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // As Prefix's.
  Status wait_layer(std::uint32_t layer);
  Status wait();
  // The attempt from which the layer was handed out, else the newest. Shared with this object,
  // which may start another attempt meanwhile.
  std::shared_ptr<const GetState> holder(std::uint32_t layer);
  std::shared_ptr<const GetState> last();

  const GetPlan plan;

 private:
  struct Attempt {
    std::uint64_t number = 0;
    std::shared_ptr<Channel> channel;  // shared with its other handles
    std::shared_ptr<GetState> state;   // destroyed before the channel, whose pool owns its buffer
    std::uint64_t request = 0;

    Status wait_layer(std::uint32_t layer) const;
  };
  using AttemptPtr = std::shared_ptr<const Attempt>;  // shared with the threads that wait for it

  Result<AttemptPtr> ask();  // sends the get once
  bool gives_up_other();     // lets the owner serve it; false if it was to do so already
  Status start();            // sends it until it is in progress, or retrying is pointless
  // Retries after attempt number `failed` ended with `why`. OK once there is another attempt to
  // wait for.
  Status again(std::uint64_t failed, const Status& why);
  // Copies a layer that was handed out to the caller's memory, once.
  Status fill(std::uint32_t layer);
  bool fills() const { return !out_.empty() || pages_.has_value(); }
  AttemptPtr newest();
  bool handed_out(std::uint32_t layer);
  // Waits until this attempt also has the layers handed out from earlier attempts.
  Status wait_handed(const Attempt& attempt);
  // Hands out layers [begin, end), which arrived in `attempt`, after wait_handed(). False:
  // `attempt` is no longer the newest. kUnavailable: it serves other rows than those that were
  // handed out.
  Result<bool> hand_out(const AttemptPtr& attempt, std::uint32_t begin, std::uint32_t end);

  const std::vector<LayerOut> out_;  // [num_layers], or empty
  const std::optional<PageSink> pages_;
  std::mutex filling_;
  std::vector<bool> filled_;  // [layer], guarded by filling_

  const Target target_;                 // has no views
  const std::shared_ptr<Nodes> nodes_;  // shared with the client and its other handles
  bool retrying_ = false;               // guarded by mutex_; one thread at a time uses retry_
  std::condition_variable retried_;     // notified when retrying_ becomes false
  Retry retry_;
  std::mutex mutex_;
  // Guarded by mutex_. An attempt that is neither the newest nor in handed_ is destroyed, with its
  // buffer.
  AttemptPtr newest_;  // never null once started
  std::uint64_t attempts_ = 0;
  std::optional<std::string> other_;  // a node that serves it instead of the owner
  std::vector<AttemptPtr> handed_;    // [layer], null until handed out
};

}  // namespace precis
