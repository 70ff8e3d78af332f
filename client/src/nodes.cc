#include "client/src/nodes.h"

#include <algorithm>

#include "precis/block_digest.h"

namespace precis {
namespace {

// If several nodes can serve a call, one of them has this long to connect, and to answer.
constexpr std::chrono::milliseconds kOneOfSeveral{2000};

bool does_not_answer(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kTimedOut;
}

}  // namespace

Result<std::shared_ptr<Nodes>> Nodes::open(Dial dial, std::vector<std::string> addresses,
                                           const CallOptions& options) {
  std::shared_ptr<Nodes> nodes(
      new Nodes(std::move(dial), std::move(addresses)));  // shared by all handles
  Retry retry(options, "connect");
  for (;;) {
    const Status failed = nodes->any(retry).status();
    if (failed.ok()) return nodes;
    if (failed.retry_after_ms() == 0) return failed;
    PRECIS_TRY(retry.again(failed));
  }
}

// ---- addresses ----------------------------------------------------------------------------------

std::vector<std::string> Nodes::candidates() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> addresses;
  const auto add = [&](const std::string& address) {
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  };
  if (!answers_.empty()) add(answers_);
  std::ranges::for_each(given_, add);
  if (map_) std::ranges::for_each(map_->addresses(), add);
  std::ranges::stable_sort(addresses, {}, [this](const std::string& address) {
    const auto failed = silent_.find(address);
    return failed == silent_.end() ? 0 : failed->second;
  });
  return addresses;
}

void Nodes::note_answer(const std::string& address, bool answers) {
  const std::lock_guard lock(mutex_);
  if (answers) {
    answers_ = address;
    silent_.erase(address);
  } else {
    silent_[address] = ++failures_;
  }
}

bool Nodes::is_silent(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  return silent_.contains(address);
}

Result<std::shared_ptr<Channel>> Nodes::at(const Retry& call, const std::string& address,
                                           std::size_t count) {
  ReconnectingChannel* link = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto connect = [this, address](std::uint32_t timeout_ms) {
      return dial_(address, timeout_ms);
    };
    link = &channels_.try_emplace(address, connect).first->second;
  }
  std::uint32_t timeout_ms = call.connect_timeout_ms();
  if (count > 1) {
    timeout_ms = std::min(timeout_ms / 2 + 1, static_cast<std::uint32_t>(kOneOfSeveral.count()));
  }
  return link->channel(call, timeout_ms);
}

Result<std::shared_ptr<Channel>> Nodes::any(const Retry& call) {
  Status first;
  const auto addresses = candidates();
  for (const std::string& address : addresses) {
    auto channel = at(call, address, addresses.size());
    const Status failed = channel.status();
    if (failed.ok() || does_not_answer(failed)) note_answer(address, failed.ok());
    if (failed.ok()) return channel;
    if (first.ok()) first = failed;
    if (!does_not_answer(failed)) return first;
  }
  if (addresses.size() < 2) return first;
  return first.with_context("none of the " + std::to_string(addresses.size()) +
                            " addresses answers; the first error");
}

// ---- owners -------------------------------------------------------------------------------------

Nodes::Map Nodes::known() const {
  const std::lock_guard lock(mutex_);
  return is_known_ ? map_ : nullptr;
}

// A node that is cut off from etcd says so once its lease has ended. Then another one is asked.
Result<Nodes::Map> Nodes::learn(const Retry& call) {
  Status first;
  const auto addresses = candidates();
  for (const std::string& address : addresses) {
    auto map = ask(call, address, addresses.size());
    note_answer(address, map.ok());
    if (map.ok()) {
      const std::lock_guard lock(mutex_);
      map_ = std::make_shared<const ClusterMap>(std::move(*map));
      is_known_ = true;
      return map_;
    }
    if (first.ok()) first = map.status();
    if (call.clock().now() >= call.deadline()) break;
  }
  return first;
}

Result<ClusterMap> Nodes::ask(const Retry& call, const std::string& address, std::size_t count) {
  PRECIS_ASSIGN(const auto channel, at(call, address, count));
  Retry::Time until = call.deadline();
  if (count > 1) until = std::min(until, call.clock().now() + kOneOfSeveral);
  msg::Request request{0, msg::ShowCluster{}};
  PRECIS_ASSIGN(auto state,
                channel->call<msg::ClusterState>(request, Patience::kOneTimeout, {}, until));
  return ClusterMap::from(std::move(state));
}

Result<Nodes::Way> Nodes::find(const Retry& call, const Target& target) {
  if (std::holds_alternative<AnyNode>(target)) {
    PRECIS_ASSIGN(auto channel, any(call));
    return Way{std::move(channel)};
  }
  Way way;
  way.map = known();
  if (!way.map) {
    PRECIS_ASSIGN(way.channel, any(call));
    if (!way.channel->clustered()) return way;
    PRECIS_ASSIGN(way.map, learn(call));
  }
  std::string address;
  if (const auto* node = std::get_if<NodeAt>(&target)) {
    address = node->address;
    const auto live = way.map->addresses();
    if (std::ranges::find(live, address) == live.end()) {
      return Status::not_found("the node at " + address + " has left the cluster");
    }
  } else {
    way.shard = way.map->shard_of(target);
    PRECIS_ASSIGN(address, way.map->owner(*way.shard));
  }
  auto channel = at(call, address, 2);  // others may soon own the shard
  if (does_not_answer(channel.status())) note_answer(address, false);
  PRECIS_TRY(channel.status());
  way.channel = std::move(*channel);
  return way;
}

Result<std::vector<Target>> Nodes::all(Retry& call) { return targets(call, /*may_share=*/false); }

Result<std::vector<Target>> Nodes::all_storages(Retry& call) {
  return targets(call, /*may_share=*/true);
}

Result<std::vector<Target>> Nodes::targets(Retry& call, bool may_share) {
  for (;;) {
    const auto targets = [&]() -> Result<std::vector<Target>> {
      PRECIS_ASSIGN(const auto channel, any(call));
      std::vector<Target> nodes;
      if (!channel->clustered()) {
        nodes.emplace_back(std::in_place_type<AnyNode>);
        return nodes;
      }
      PRECIS_ASSIGN(const auto map, learn(call));
      if (may_share && map->shares_storage()) {
        nodes.emplace_back(std::in_place_type<AnyNode>);
        return nodes;
      }
      for (std::string& address : map->addresses()) {
        nodes.emplace_back(std::in_place_type<NodeAt>, std::move(address));
      }
      return nodes;
    }();
    if (targets.ok()) return targets;
    PRECIS_TRY(call.again(noted(call, targets.status(), {})));
  }
}

Retry::Time Nodes::attempt_end(const Retry& call, const Channel& channel) {
  if (!channel.clustered() || call.deadline() == Retry::Time::max()) return call.deadline();
  const auto now = call.clock().now();
  return now + std::max(call.deadline() - now, Retry::Time::duration{}) / 2;
}

Status Nodes::noted(Retry& call, const Status& failed, const Way& way) {
  const bool has_moved = failed.code() == StatusCode::kMoved;
  if (!does_not_answer(failed) && !has_moved) return failed;
  // A node that refuses a call knows better than the one that told the owners.
  if (way.channel) note_answer(way.channel->address(), has_moved);
  const std::lock_guard lock(mutex_);
  if (!way.map || way.map == map_) is_known_ = false;
  if (map_) call.hurry();
  const bool is_late = call.clock().now() >= call.deadline();
  const bool clustered = way.channel && way.channel->clustered();
  if (failed.code() != StatusCode::kTimedOut || !clustered || is_late) return failed;
  return Status::unavailable(failed.message());
}

}  // namespace precis
