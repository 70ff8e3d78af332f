#include "cachesvc/cluster/view.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "cachesvc/cluster/base64.h"
#include "cachesvc/cluster/fork_finder.h"
#include "cachesvc/cluster/json.h"
#include "cachesvc/net/address.h"
#include "precis/block_digest.h"
#include "precis/little_endian.h"
#include "precis/placement.h"
#include "precis/printable.h"
#include "precis/shards.h"

namespace precis::cluster {
namespace {

constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kNodeRowBytesMax = 4096;
constexpr std::uint16_t kNobodyStored = 0xffff;
// Epochs grow by one, or past those of marks. So no row can make them overflow.
constexpr std::uint64_t kEpochMax = std::uint64_t{1} << 62;

std::string owners_key(const std::string& cluster) { return rows_prefix(cluster) + "owners"; }
std::string forks_key(const std::string& cluster) { return rows_prefix(cluster) + "forks"; }

Status unreadable(const std::string& key) {
  return Status::corruption("the row " + printable(key) +
                            " in etcd is not one of Precis, so it is left out: if nothing else "
                            "uses this name, remove the row");
}

Status other_format(const std::string& what, const std::string& key, std::uint32_t format) {
  return Status::unsupported(what + " in etcd, " + key + ", has the format " +
                             std::to_string(format) + ", this version of precisd reads " +
                             std::to_string(kFormat) + ": run one version on all nodes");
}

template <typename T>
std::optional<T> field_of(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end()) return {};
  if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string() ||
        found->get_ref<const std::string&>().size() > limits::kNameBytesMax) {
      return {};
    }
  } else {
    if (!found->is_number_unsigned() || found->template get<std::uint64_t>() > 0xffffffffu) {
      return {};
    }
  }
  return found->template get<T>();
}

std::optional<NodeRow> parse_node(std::string_view text) {
  if (text.size() > kNodeRowBytesMax) return {};
  const Json json = parsed(text);
  auto address = field_of<std::string>(json, "address");
  auto version = field_of<std::string>(json, "version");
  auto instance = field_of<std::string>(json, "instance");
  const auto weight = field_of<std::uint32_t>(json, "weight");
  if (!address || !version || !instance || !weight) return {};
  if (!is_plain(*address) || !split_address(*address).ok() || !is_plain(*version)) return {};
  if (*weight == 0 || *weight > kWeightMax) return {};
  auto storage = field_of<std::string>(json, "storage").value_or("");
  if (!is_plain(storage)) storage.clear();
  return NodeRow{std::move(*address), std::move(*version), *weight, std::move(*instance),
                 std::move(storage)};
}

// The table of owners as stored.
struct Table {
  std::uint64_t epoch = 0;
  std::vector<std::string> nodes;
  std::vector<std::uint32_t> owners;  // indices into nodes, or kNobody
};

std::string to_json(const Table& table) {
  std::vector<std::byte> owners;
  for (const std::uint32_t owner : table.owners) {
    put_le(owners, owner == kNobody ? kNobodyStored : static_cast<std::uint16_t>(owner));
  }
  const std::string bytes(reinterpret_cast<const char*>(owners.data()), owners.size());
  return Json{{"format", kFormat},
              {"epoch", table.epoch},
              {"nodes", table.nodes},
              {"owners", to_base64(bytes)}}
      .dump();
}

Result<Table> parse_table(const Etcd::Row& row) {
  const Json json = parsed(row.value);
  const auto format = field_of<std::uint32_t>(json, "format");
  if (format && *format != kFormat) return other_format("the table of owners", row.key, *format);
  const auto nodes = json.is_object() ? json.find("nodes") : json.end();
  const auto owners = json.is_object() ? json.find("owners") : json.end();
  if (!format || nodes == json.end() || owners == json.end() || !nodes->is_array() ||
      nodes->size() > kLiveNodesMax || !owners->is_string()) {
    return unreadable(row.key);
  }
  Table table{row.revision, {}, {}};
  if (const auto epoch = json.find("epoch"); epoch != json.end()) {
    if (!epoch->is_number_unsigned() || *epoch > kEpochMax) return unreadable(row.key);
    table.epoch = epoch->get<std::uint64_t>();
  }
  for (const Json& node : *nodes) {
    if (!node.is_string() || !is_name(node.get_ref<const std::string&>())) {
      return unreadable(row.key);
    }
    table.nodes.push_back(node.get<std::string>());
  }
  const auto bytes = from_base64(owners->get_ref<const std::string&>());
  if (!bytes || bytes->size() != 2 * std::size_t{kShards}) return unreadable(row.key);
  LeReader reader(std::as_bytes(std::span(*bytes)));
  while (table.owners.size() < kShards) {
    const auto owner = reader.get<std::uint16_t>();
    if (owner != kNobodyStored && owner >= table.nodes.size()) return unreadable(row.key);
    table.owners.push_back(owner == kNobodyStored ? kNobody : owner);
  }
  return table;
}

Result<Forks> parse_forks(const Etcd::Row& row) {
  const Json json = parsed(row.value);
  const auto format = field_of<std::uint32_t>(json, "format");
  if (format && *format != kFormat) return other_format("the list of forks", row.key, *format);
  const auto rows = json.is_object() ? json.find("forks") : json.end();
  if (!format || rows == json.end() || !rows->is_array() || rows->size() > limits::kForksMax) {
    return unreadable(row.key);
  }
  Forks forks;
  for (const Json& fork : *rows) {
    if (!fork.is_array() || fork.size() != 2 || !fork[0].is_string() ||
        !fork[1].is_number_unsigned() || fork[1].get<std::uint64_t>() > ForkFinder::kBlocksMax) {
      return unreadable(row.key);
    }
    const auto bytes = from_base64(fork[0].get_ref<const std::string&>());
    Digest block;
    if (!bytes || bytes->size() != block.bytes.size()) return unreadable(row.key);
    std::ranges::copy(std::as_bytes(std::span(*bytes)),
                      std::as_writable_bytes(std::span(block.bytes)).begin());
    forks[block] = fork[1].get<std::uint32_t>();
  }
  return forks;
}

}  // namespace

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7f; });
}

std::string rows_prefix(const std::string& cluster) { return "precis/" + cluster + "/"; }
std::string agreed_key(const std::string& cluster) { return rows_prefix(cluster) + "agreed"; }
std::string node_key(const std::string& cluster, const std::string& node) {
  return rows_prefix(cluster) + "nodes/" + node;
}
std::string drain_key(const std::string& cluster, const std::string& node) {
  return rows_prefix(cluster) + "drains/" + node;
}

std::string to_json(const NodeRow& node) {
  return Json{{"address", node.address},
              {"version", node.version},
              {"weight", node.weight},
              {"instance", node.instance},
              {"storage", node.storage}}
      .dump();
}

const msg::ClusterNode* View::find(const std::string& node) const {
  const auto found = std::ranges::lower_bound(nodes, node, {}, &msg::ClusterNode::name);
  return found == nodes.end() || found->name != node ? nullptr : &*found;
}

View read_view(const std::string& cluster, const Etcd::Rows& rows) {
  std::map<std::string, msg::ClusterNode> nodes;
  std::vector<std::string> drains;
  Table table;
  View view;
  view.revision = rows.revision;
  const auto note = [&view](Status problem) {
    if (view.problem.ok()) view.problem = std::move(problem);
  };
  const std::string of_nodes = node_key(cluster, ""), of_drains = drain_key(cluster, "");
  for (const Etcd::Row& row : rows.rows) {
    if (row.key.starts_with(of_nodes)) {
      const std::string name = row.key.substr(of_nodes.size());
      auto node = parse_node(row.value);
      if (!node || !is_name(name)) {
        note(unreadable(row.key));
      } else if (nodes.size() == kLiveNodesMax) {
        note(Status::unsupported("the cluster has more than " + std::to_string(kLiveNodesMax) +
                                 " live nodes, and the others own no shards: stop some"));
      } else {
        view.instances.insert(node->instance);
        view.storages[name] = std::move(node->storage);
        nodes[name] = {
            name, std::move(node->address), std::move(node->version), node->weight, false, true, 0};
      }
    } else if (row.key.starts_with(of_drains)) {
      drains.push_back(row.key.substr(of_drains.size()));
    } else if (row.key == owners_key(cluster)) {
      view.owners_revision = row.revision;
      auto read = parse_table(row);
      view.owners_known = read.ok();
      if (read.ok()) {
        table = std::move(*read);
        view.owners_epoch = table.epoch;
      } else {
        note(read.status());
      }
    } else if (row.key == agreed_key(cluster)) {
      view.agreed_revision = row.revision;
      view.agreed = row.value;
    } else if (row.key == forks_key(cluster)) {
      view.forks_revision = row.revision;
      auto read = parse_forks(row);
      view.forks_known = read.ok();
      if (read.ok()) {
        view.forks = std::make_shared<const Forks>(std::move(*read));
      } else {
        note(read.status());
      }
    }
  }
  for (const std::string& name : table.nodes) nodes[name].name = name;
  view.has_left = std::ranges::any_of(
      table.nodes, [&](const std::string& name) { return !nodes.at(name).live; });
  for (const std::string& name : drains) {
    if (!is_name(name) || nodes.size() == limits::kClusterNodesMax) continue;
    nodes[name].name = name;
    nodes[name].draining = true;
  }
  std::map<std::string, std::uint32_t> places;
  for (auto& [name, node] : nodes) {
    places[name] = static_cast<std::uint32_t>(view.nodes.size());
    view.nodes.push_back(std::move(node));
  }
  view.owners = std::move(table.owners);
  for (std::uint32_t& owner : view.owners) {
    if (owner == kNobody) continue;
    owner = places.at(table.nodes[owner]);
    ++view.nodes[owner].shards;
  }
  return view;
}

Status check_storage(const View& view, const std::string& node, const std::string& storage) {
  for (const auto& [name, other] : view.storages) {
    if (name == node || other.empty() || storage.empty() || other == storage) continue;
    return Status::conflict(
        "the node '" + name + "' shares " + other + ", and this one shares " + storage +
        ": all nodes need the same cluster_ceph_* and cluster_s3_* "
        "settings. To give a cluster another storage, stop all its nodes first");
  }
  return {};
}

std::vector<std::string> others_for(const View& view, const std::string& node,
                                    const std::string& key, std::size_t count) {
  std::vector<std::pair<std::uint64_t, const msg::ClusterNode*>> order;
  for (const msg::ClusterNode& other : view.nodes) {
    if (!other.live || other.draining || other.shards == 0 || other.name == node) continue;
    order.emplace_back(member_key(key + "/" + other.name), &other);
  }
  std::ranges::sort(order, std::greater());
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < std::min(order.size(), count); ++i) {
    addresses.push_back(order[i].second->address);
  }
  return addresses;
}

std::vector<bool> owned_shards(const View& view, const std::string& node) {
  std::vector<bool> owned(view.owners.size());
  for (std::size_t shard = 0; shard < owned.size(); ++shard) {
    const std::uint32_t owner = view.owners[shard];
    owned[shard] = owner != kNobody && view.nodes[owner].name == node;
  }
  return owned;
}

Status check_owned(const View& view, std::uint32_t shard, const std::string& node) {
  const std::uint32_t number = view.owners.empty() ? kNobody : view.owners.at(shard);
  if (number == kNobody) return Status::moved("nobody owns the shard " + std::to_string(shard));
  const msg::ClusterNode& owner = view.nodes[number];
  if (owner.name == node) return {};
  return Status::moved("the node '" + owner.name + "' at " + owner.address + " owns the shard " +
                       std::to_string(shard));
}

Etcd::Row forks_row(const std::string& cluster, const Forks& forks, std::uint64_t revision) {
  Json rows = Json::array();
  for (const auto& [block, blocks] : forks) {
    const std::string digest(reinterpret_cast<const char*>(block.bytes.data()), block.bytes.size());
    rows.push_back(Json::array({to_base64(digest), blocks}));
  }
  return {forks_key(cluster), Json{{"format", kFormat}, {"forks", std::move(rows)}}.dump(),
          revision};
}

std::optional<Etcd::Row> better_owners(const std::string& cluster, const View& view,
                                       std::uint64_t least_epoch) {
  std::vector<std::uint32_t> place(view.nodes.size(), kNobody);  // among the live nodes
  std::vector<Member> members;
  Table table;
  for (std::size_t n = 0; n < view.nodes.size(); ++n) {
    const msg::ClusterNode& node = view.nodes[n];
    if (!node.live) continue;
    place[n] = static_cast<std::uint32_t>(members.size());
    members.push_back({member_key(node.name), node.draining ? 0 : node.weight});
    table.nodes.push_back(node.name);
  }
  if (members.empty() || !view.owners_known) return {};
  std::vector<std::uint32_t> owners = view.owners;
  owners.resize(kShards, kNobody);
  for (std::uint32_t& owner : owners) {
    if (owner != kNobody) owner = place[owner];
  }
  table.owners = place_shards(members, owners);
  const bool is_late = view.owners_epoch < least_epoch;
  if (!is_late && !view.has_left && view.owners_revision != 0 && table.owners == owners) return {};
  table.epoch = std::max({view.owners_epoch + 1, view.owners_revision + 1, least_epoch});
  return Etcd::Row{owners_key(cluster), to_json(table), view.owners_revision};
}

}  // namespace precis::cluster
