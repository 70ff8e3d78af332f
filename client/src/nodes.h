// The connections of a client: to one service, or to the nodes of a cluster, each when it is first
// needed. Idempotent calls, and calls that had no effect, are retried within their deadline.
//
// In a cluster, a call goes to the owner of its shard. The client learns the owners from any node,
// and again when a call has failed because its node does not answer or does not own the shard.
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
  // The way to a target.
  struct Way {
    std::shared_ptr<Channel> channel;
    std::shared_ptr<const ClusterMap> map = {};  // that named the node; null: none was needed
    std::optional<std::uint32_t> shard = {};     // of a target that has an owner
  };

  // Connects to the first of the addresses that answers. A service that is not there is
  // kUnavailable at once; one that says when to retry is retried within the timeout.
  static Result<std::shared_ptr<Nodes>> open(Dial dial, std::vector<std::string> addresses,
                                             const CallOptions& options);

  // Connects to the target's node if it is not connected and the call retries. kNotFound for a
  // NodeAt that has left the cluster.
  Result<Way> find(const Retry& call, const Target& target);
  // All live nodes; AnyNode alone for a service that is in no cluster.
  Result<std::vector<Target>> all(Retry& call);
  // Nodes that reach all storages of the cluster: AnyNode alone if the nodes share one, else all().
  Result<std::vector<Target>> all_storages(Retry& call);
  // Whether the node at this address did not answer its last call.
  bool is_silent(const std::string& address) const;
  // Notes that an attempt on `way` failed; `way` is empty if none was found. Returns the failure
  // for Retry::again(): in a cluster, a call that timed out at one node may go on at another.
  Status noted(Retry& call, const Status& failed, const Way& way);
  // The deadline of one attempt. In a cluster, it leaves time for an attempt at another node.
  static Retry::Time attempt_end(const Retry& call, const Channel& channel);

  // `shard`, if not null: set to the shard in which the target was found.
  template <typename T>
  Result<T> call(Retry& retry, const Target& target, msg::RequestBody body,
                 Patience patience = Patience::kOneTimeout, Repeat repeat = Repeat::kSafe,
                 std::optional<std::uint32_t>* shard = nullptr) {
    msg::Request request{0, std::move(body)};
    for (;;) {
      Way way;
      auto found = find(retry, target);
      Status failed = found.status();
      if (failed.ok()) {
        way = std::move(*found);
        if (shard != nullptr) *shard = way.shard;
        const bool sends = !way.channel->lost();
        const bool is_short = patience == Patience::kOneTimeout && repeat == Repeat::kSafe;
        auto reply = way.channel->template call<T>(
            request, patience, {}, is_short ? attempt_end(retry, *way.channel) : retry.deadline());
        if (reply.ok()) return reply;
        failed = reply.status();
        // Nothing is sent if the channel was lost before the call.
        const bool gone = failed.code() == StatusCode::kUnavailable;
        if (gone && sends && repeat == Repeat::kUnsafe) {
          return failed.with_context(retry.what() + ": the outcome is unknown");
        }
      }
      const Status seen = noted(retry, failed, way);
      const bool may_be_done = failed.code() == StatusCode::kTimedOut && repeat == Repeat::kUnsafe;
      PRECIS_TRY(retry.again(may_be_done ? failed : seen));
    }
  }

 private:
  using Map = std::shared_ptr<const ClusterMap>;  // shared with the calls that use it

  Nodes(Dial dial, std::vector<std::string> addresses)
      : dial_(std::move(dial)), given_(std::move(addresses)) {}
  // Connects to one of `count` nodes that can serve the call.
  Result<std::shared_ptr<Channel>> at(const Retry& call, const std::string& address,
                                      std::size_t count);
  // Addresses where a node may answer, the best first.
  std::vector<std::string> candidates() const;
  Result<std::shared_ptr<Channel>> any(const Retry& call);
  Result<std::vector<Target>> targets(Retry& call, bool may_share);
  // Null if the owners are not known, or may have changed.
  Map known() const;
  Result<Map> learn(const Retry& call);
  Result<ClusterMap> ask(const Retry& call, const std::string& address, std::size_t count);
  void note_answer(const std::string& address, bool answers);

  const Dial dial_;
  const std::vector<std::string> given_;  // addresses
  mutable std::mutex mutex_;
  // Guarded by mutex_. Channels are never removed, so references to them stay valid.
  std::map<std::string, ReconnectingChannel> channels_;  // by address
  std::string answers_;                                  // the address that is asked first
  std::map<std::string, std::uint64_t> silent_;          // addresses, numbered as they failed
  std::uint64_t failures_ = 0;
  Map map_;                // the latest; null: none was learned
  bool is_known_ = false;  // no call has shown that map_ is old
};

}  // namespace precis
