#include "client/src/nodes.h"

#include <algorithm>

namespace precis {
namespace {

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

ReconnectingChannel& Nodes::at(const std::string& address) {
  const std::lock_guard lock(mutex_);
  const auto connect = [this, address](std::uint32_t timeout_ms) {
    return dial(address, timeout_ms);
  };
  return channels_.try_emplace(address, connect).first->second;
}

Result<std::shared_ptr<Channel>> Nodes::dial(const std::string& address, std::uint32_t timeout_ms) {
  auto channel = dial_(address, timeout_ms);
  if (!channel.ok() || !(*channel)->clustered()) return channel;
  std::vector<ModelSpec> models;
  {
    const std::lock_guard lock(mutex_);
    models = models_;
  }
  for (const ModelSpec& model : models) {
    msg::Request request{0, msg::RegisterModel{model}};
    // If this fails, for example for a reader, the calls that need the model say so.
    static_cast<void>((*channel)->call<msg::ModelRow>(request));
  }
  return channel;
}

void Nodes::introduce(const ModelSpec& model) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(models_, model) == models_.end()) models_.push_back(model);
}

std::vector<std::string> Nodes::candidates() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> addresses;
  const auto add = [&](const std::string& address) {
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  };
  if (!answers_.empty()) add(answers_);
  std::ranges::for_each(given_, add);
  if (map_) std::ranges::for_each(map_->addresses(), add);
  return addresses;
}

Result<std::shared_ptr<Channel>> Nodes::any(const Retry& call) {
  Status first;
  for (const std::string& address : candidates()) {
    auto channel = at(address).channel(call);
    const Status failed = channel.status();
    if (failed.ok()) {
      const std::lock_guard lock(mutex_);
      answers_ = address;
      return channel;
    }
    if (first.ok()) first = failed;
    if (!does_not_answer(failed)) break;
  }
  return first;
}

Result<std::shared_ptr<Channel>> Nodes::channel(const Retry& call, const Target& target) {
  if (const auto* node = std::get_if<NodeAt>(&target)) return at(node->address).channel(call);
  if (std::holds_alternative<AnyNode>(target)) return any(call);
  auto map = known();
  if (!map) {
    PRECIS_ASSIGN(auto channel, any(call));
    if (!channel->clustered()) return channel;
    PRECIS_ASSIGN(map, learn(call));
  }
  PRECIS_ASSIGN(const std::string address, map->owner(map->shard_of(target)));
  return at(address).channel(call);
}

Result<std::vector<Target>> Nodes::all(const Retry& call) {
  PRECIS_ASSIGN(const auto channel, any(call));
  if (!channel->clustered()) return std::vector<Target>{AnyNode{}};
  PRECIS_ASSIGN(const auto map, learn(call));
  std::vector<Target> targets;
  for (std::string& address : map->addresses()) targets.push_back(NodeAt{std::move(address)});
  return targets;
}

std::optional<std::uint32_t> Nodes::shard_of(const Target& target) const {
  const std::lock_guard lock(mutex_);
  if (!map_) return {};
  return map_->shard_of(target);
}

Status Nodes::noted(const Retry& call, const Status& failed) {
  if (!does_not_answer(failed) && failed.code() != StatusCode::kMoved) return failed;
  const std::lock_guard lock(mutex_);
  is_known_ = false;
  const bool is_late = call.clock().now() >= call.deadline();
  if (failed.code() != StatusCode::kTimedOut || !map_ || is_late) return failed;
  return Status::unavailable(failed.message());
}

Nodes::Map Nodes::known() const {
  const std::lock_guard lock(mutex_);
  return is_known_ ? map_ : nullptr;
}

// A node that is cut off from etcd knows an old map only, so then another one is asked.
Result<Nodes::Map> Nodes::learn(const Retry& call) {
  Status first;
  for (const std::string& address : candidates()) {
    auto map = ask(call, address);
    const std::lock_guard lock(mutex_);
    if (map.ok()) {
      answers_ = address;
      map_ = std::make_shared<const ClusterMap>(std::move(*map));
      is_known_ = true;
      return map_;
    }
    if (first.ok()) first = map.status();
  }
  return first;
}

Result<ClusterMap> Nodes::ask(const Retry& call, const std::string& address) {
  PRECIS_ASSIGN(const auto channel, at(address).channel(call));
  msg::Request request{0, msg::ShowCluster{}};
  PRECIS_ASSIGN(auto state, channel->call<msg::ClusterState>(request, Patience::kOneTimeout, {},
                                                             call.deadline()));
  return ClusterMap::from(std::move(state));
}

}  // namespace precis
