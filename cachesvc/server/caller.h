// The client of one connection, as the handlers of its requests see it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cachesvc/base/task.h"
#include "cachesvc/server/handler_parts.h"
#include "cachesvc/shared/copied.h"

namespace precis {

using Answer = Result<msg::ReplyBody>;

template <typename T>
Answer answer(Result<T> result) {
  if (!result.ok()) return result.status();
  return msg::ReplyBody(std::move(result).value());
}
inline Answer answer(Status status) {
  if (!status.ok()) return status;
  return msg::ReplyBody(msg::Done{});
}

// A change by a request, for the log and the audit log.
struct NotedChange {
  std::string_view request;     // its name
  std::string_view event = {};  // name of the log line; empty: no line
  std::string of = {};
  std::string text = {};  // for the log
  std::optional<std::string> was = {}, is = {};
};

struct Caller {
  const HandlerParts& parts;
  Tenant tenant;
  std::string client;  // the name that the client gives itself
  Connection& connection;
  bool gone = false;  // the client has disconnected

  Owner owner() const { return tenant.owner(&connection); }
  // Logs the change, unless it changed nothing.
  void note(NotedChange change) const;
  // The labels of a request. `model`: its name, of the catalog; `tier`: "memory", "disk" or empty.
  RequestLabels labels(const std::string& model, std::string tier = {}) const;
  // Adds the time since `began`.
  void observe(Labeled<Histogram>& histograms, const RequestLabels& labels,
               Clock::Time began) const;
  // Sets in_memory: whether every layer of the segment is in the hot tier.
  msg::SegmentInfo with_tier(msg::SegmentInfo info) const;
  // Runs a blocking catalog call on the storage executor, in this connection's turn.
  template <typename Fn>
  auto stored(Fn fn) const {
    return run_on(parts.storage, parts.loop, owner(), std::move(fn));
  }
  // Runs a blocking change of settings (settings_catalog.h). Those wait for each other, and maybe
  // for etcd, but no put waits for them.
  template <typename Fn>
  auto changed(Fn fn) const {
    return run_on(parts.changes, parts.loop, owner(), std::move(fn));
  }
  // kUnsupported if this service cannot make a change so durable.
  Status check(Durability durability) const;
  // kRejected while too much waits to be copied to the storage that nodes share.
  Status check_uploads() const;
  // A shard as it is held now; none without shared storage.
  std::optional<HeldShard> held(std::optional<std::uint32_t> shard) const;
  // The shard of a stored segment.
  std::optional<HeldShard> shard_of(const SegmentId& segment) const;
  // Waits until all changes of the shard so far are in the shared storage, if there is one.
  Task<Status> shared(std::optional<HeldShard> shard) const;
  // Runs a function that reads many rows on another thread than the loop's, in this connection's
  // turn. `cost`: its milliseconds, about.
  template <typename Fn>
  auto listed(Fn fn, double cost = 1) const {
    return run_on(parts.paths.turns(), parts.loop, owner(), std::move(fn), cost);
  }
};

}  // namespace precis
