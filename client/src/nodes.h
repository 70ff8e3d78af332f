// The connections of a client: to one service, or to the nodes of a cluster, each when it is first
// needed. Idempotent calls, and calls that had no effect, are retried within their deadline.
//
// In a cluster, a call goes to the owner of its shard. The client learns the owners from any node,
// and again when a call has failed because its node is gone or does not own the shard.
//
// Owned by the client's handles. Any thread but the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/src/cluster_map.h"
#include "client/src/reconnecting_channel.h"
#include "client/src/retry.h"
#include "precis/messages.h"

namespace precis {

class Nodes {
 public:
  // Connects; as Channel::open().
  using Dial = std::function<Result<std::shared_ptr<Channel>>(const std::string& address,
                                                              std::uint32_t timeout_ms)>;
  // Whether a call that was sent may be repeated after its connection was lost: whether it is
  // idempotent.
  enum class Repeat : std::uint8_t { kSafe, kUnsafe };

  // Connects to the first of the addresses that answers. A service that is not there is
  // kUnavailable at once; one that says when to retry is retried within the timeout.
  static Result<std::shared_ptr<Nodes>> open(Dial dial, std::vector<std::string> addresses,
                                             const CallOptions& options);

  // The channel to the target's node, connected if it is not and the call retries.
  Result<std::shared_ptr<Channel>> channel(const Retry& call, const Target& target);
  // All live nodes; AnyNode alone for a service that is in no cluster.
  Result<std::vector<Target>> all(const Retry& call);
  // The target's shard. Absent if the service is in no cluster. It sends nothing: call it after a
  // call to the same target.
  std::optional<std::uint32_t> shard_of(const Target& target) const;
  // A node that is connected to from now on is told of the model, because it may have joined since
  // the model was registered.
  void introduce(const ModelSpec& model);
  // After the call's failure; returns the failure for Retry::again(). In a cluster, a node that
  // does not answer may have lost its shards, or will soon: so the owners are learned again, and a
  // call that timed out goes on if it has no deadline or has time left.
  Status noted(const Retry& call, const Status& failed);

  template <typename T>
  Result<T> call(Retry& retry, const Target& target, msg::RequestBody body,
                 Patience patience = Patience::kOneTimeout, Repeat repeat = Repeat::kSafe) {
    msg::Request request{0, std::move(body)};
    for (;;) {
      auto open = channel(retry, target);
      Status failed = open.status();
      if (failed.ok()) {
        const bool sends = !(*open)->lost();
        auto reply = (*open)->template call<T>(request, patience, {}, retry.deadline());
        if (reply.ok()) return reply;
        failed = reply.status();
        // A channel that was lost before the call has sent nothing.
        const bool gone = failed.code() == StatusCode::kUnavailable;
        if (gone && sends && repeat == Repeat::kUnsafe) {
          return failed.with_context(retry.what() + ": the outcome is unknown");
        }
      }
      const Status seen = noted(retry, failed);
      const bool may_be_done = failed.code() == StatusCode::kTimedOut && repeat == Repeat::kUnsafe;
      PRECIS_TRY(retry.again(may_be_done ? failed : seen));
    }
  }

 private:
  Nodes(Dial dial, std::vector<std::string> addresses)
      : dial_(std::move(dial)), given_(std::move(addresses)) {}
  ReconnectingChannel& at(const std::string& address);
  Result<std::shared_ptr<Channel>> dial(const std::string& address, std::uint32_t timeout_ms);
  // Addresses where a node may answer, the best first.
  std::vector<std::string> candidates() const;
  Result<std::shared_ptr<Channel>> any(const Retry& call);
  using Map = std::shared_ptr<const ClusterMap>;  // shared with the calls that use it
  // Null if the owners are not known, or may have changed.
  Map known() const;
  Result<Map> learn(const Retry& call);
  Result<ClusterMap> ask(const Retry& call, const std::string& address);

  const Dial dial_;
  const std::vector<std::string> given_;  // addresses
  mutable std::mutex mutex_;
  // Guarded by mutex_. Channels are never removed, so references to them stay valid.
  std::map<std::string, ReconnectingChannel> channels_;  // by address
  std::string answers_;                                  // the address that answered last
  Map map_;                                              // the latest; null: none was learned
  std::vector<ModelSpec> models_;
  bool is_known_ = false;  // nothing hints that map_ is old
};

}  // namespace precis
