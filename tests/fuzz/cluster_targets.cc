// Rows of etcd and of shared storage, which other nodes, operators and other programs have written.
#include <algorithm>
#include <string>

#include "cachesvc/cluster/base64.h"
#include "cachesvc/cluster/etcd.h"
#include "cachesvc/cluster/view.h"
#include "cachesvc/shared/shard_marks.h"
#include "cachesvc/shared/tiered_store.h"
#include "precis/limits.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/targets.h"

namespace precis::fuzz {
namespace {

using cluster::Etcd;

constexpr char kCluster[] = "c";

std::string owners_of(const std::string& nodes) {
  const std::string zeros(2 * limits::kShards, '\0');
  return R"({"format": 1, "nodes": )" + nodes + R"(, "owners": ")" + cluster::to_base64(zeros) +
         "\"}";
}

// An accepted view names only nodes that it has, and a table made from it is accepted too.
bool check_view(Etcd::Rows rows) {
  const cluster::View view = cluster::read_view(kCluster, rows);
  PRECIS_CHECK(view.owners.empty() || view.owners.size() == limits::kShards);
  for (const std::uint32_t owner : view.owners) {
    PRECIS_CHECK(owner == ~std::uint32_t{0} || owner < view.nodes.size());
  }
  if (auto better = cluster::better_owners(kCluster, view)) {
    std::erase_if(rows.rows, [&](const Etcd::Row& row) { return row.key == better->key; });
    better->revision = ++rows.revision;
    rows.rows.push_back(std::move(*better));
    const cluster::View settled = cluster::read_view(kCluster, rows);
    PRECIS_CHECK(settled.problem == view.problem && settled.owners_known);
    PRECIS_CHECK(!cluster::better_owners(kCluster, settled));
  }
  return view.problem.ok() || refused(view.problem);
}

bool run_node(Bytes input) {
  return check_view({1,
                     {{cluster::node_key(kCluster, "a"), std::string(as_text(input)), 1},
                      {"precis/c/owners", owners_of(R"(["a", "b"])"), 1}}});
}

bool run_node_key(Bytes input) {
  const cluster::NodeRow node{"a:1", "0.1", 100, "1"};
  return check_view({1, {{"precis/c/" + std::string(as_text(input)), to_json(node), 1}}});
}

bool run_owners(Bytes input) {
  const cluster::NodeRow node{"a:1", "0.1", 100, "1"};
  return check_view({1,
                     {{cluster::node_key(kCluster, "a"), to_json(node), 1},
                      {"precis/c/owners", std::string(as_text(input)), 1}}});
}

// An accepted list of forks is written as it was read.
bool run_forks(Bytes input) {
  const auto read = [](const std::string& text) {
    return cluster::read_view(kCluster, {1, {{"precis/c/forks", text, 1}}});
  };
  const cluster::View view = read(std::string(as_text(input)));
  PRECIS_CHECK(view.forks->size() <= limits::kForksMax);
  const cluster::View again = read(cluster::forks_row(kCluster, *view.forks, 1).value);
  PRECIS_CHECK(*again.forks == *view.forks && again.problem.ok());
  return view.problem.ok() || refused(view.problem);
}

bool run_rows(Bytes input) {
  auto rows = Etcd::parse_rows(as_text(input));
  if (!rows.ok()) return refused(rows.status());
  PRECIS_CHECK(rows->revision > 0);
  return true;
}

// An accepted mark is written as it was read.
bool run_mark(Bytes input) {
  const auto mark = decode_mark(input);
  if (!mark.ok()) return refused(mark.status());
  PRECIS_CHECK(std::ranges::equal(encode(*mark), input));
  return true;
}

bool run_shared_key(Bytes input) {
  const auto key = from_shared_key(as_text(input));
  if (!key) return false;
  PRECIS_CHECK(shared_key(key->first, key->second) == as_text(input));
  return true;
}

Inputs mark_seeds(std::uint64_t) {
  return {encode(ShardMark{}), encode(ShardMark{7, 1, true, "disk", "instance"})};
}
Inputs shared_key_seeds(std::uint64_t) {
  return {bytes_of(shared_key(Table::kSegments, "0123456789abcdef")),
          bytes_of(shared_key(Table::kSessions, "chat"))};
}
Inputs node_seeds(std::uint64_t) {
  return {bytes_of(to_json(cluster::NodeRow{"10.0.0.1:7470", "0.1.0", 300, "00c0ffee"}))};
}
Inputs node_key_seeds(std::uint64_t) {
  return {bytes_of("nodes/a.b-1"), bytes_of("drains/a"), bytes_of("later")};
}
Inputs owners_seeds(std::uint64_t) {
  return {bytes_of(owners_of(R"(["a"])")), bytes_of(owners_of(R"(["b", "a", "c"])"))};
}
Inputs forks_seeds(std::uint64_t) {
  return {bytes_of(R"({"format":1,"forks":[]})"),
          bytes_of(cluster::forks_row(kCluster, {{Digest{}, 65}}, 1).value)};
}
Inputs rows_seeds(std::uint64_t) {
  return {bytes_of(R"({"header":{"revision":"2"}})"),
          bytes_of(R"({"header":{"cluster_id":"1","revision":"9"},"kvs":[{"key":"Zm9v",)"
                   R"("create_revision":"2","mod_revision":"3","version":"1","value":"YmFy"},)"
                   R"({"key":"Zg==","mod_revision":"4"}],"count":"2"})")};
}

constexpr Target kTargets[] = {
    {"read_cluster_node", run_node, node_seeds},
    {"read_cluster_node_key", run_node_key, node_key_seeds},
    {"read_cluster_owners", run_owners, owners_seeds},
    {"read_cluster_forks", run_forks, forks_seeds},
    {"parse_etcd_rows", run_rows, rows_seeds},
    {"read_shard_mark", run_mark, mark_seeds},
    {"read_shared_key", run_shared_key, shared_key_seeds},
};

}  // namespace

std::span<const Target> cluster_targets() { return kTargets; }

}  // namespace precis::fuzz
