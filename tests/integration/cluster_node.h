// Nodes of a cluster: real processes of precisd with a real etcd.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/etcd_members.h"
#include "tests/integration/process.h"
#include "tests/integration/service_process.h"

namespace precis::testing {

struct NodeSetup {
  std::string etcd_urls, name;
  std::string more;  // settings, each with the end of its line
  std::uint32_t lease_s = 5;
  std::string memory = "32MiB";
  std::string listen;               // empty: a free port
  std::vector<std::string> before;  // as in ServiceProcess
};

// A node of the cluster "precis". It keeps its name, its address and its data when it is started
// again.
class Node {
 public:
  explicit Node(const NodeSetup& setup)
      : name_(setup.name), memory_(setup.memory), before_(setup.before), address_(setup.listen) {
    std::ofstream(dir_.path("precisd.toml"))
        << "cluster_etcd = \"" << setup.etcd_urls << "\"\ncluster_node = \"" << name_
        << "\"\ncluster_lease_s = " << setup.lease_s << "\n"
        << setup.more << "[[tenant]]\nname = 'ops'\ntoken = 'boss'\nrole = 'admin'\n"
        << "[[tenant]]\nname = 'red'\n";
    start();
  }
  Node(const EtcdMembers& etcd, std::string name, std::string more = "", std::uint32_t lease_s = 5,
       std::string memory = "32MiB")
      : Node(NodeSetup{
            etcd.urls(), std::move(name), std::move(more), lease_s, std::move(memory), {}, {}}) {}
  void start() {
    std::vector<std::string> flags = {"--config", dir_.path("precisd.toml"), "--memory", memory_};
    if (!address_.empty()) flags.insert(flags.end(), {"--listen", address_});
    service_.emplace(dir_, flags, before_);
    address_ = service_->address();
    ConnectOptions ops;
    ops.tenant = "ops";
    ops.token = "boss";
    client_ = service_->connect(ops);
  }
  int kill() {
    client_.reset();
    return service_->kill();
  }
  int stop() {
    client_.reset();
    return service_->stop();
  }
  // Call it while the process does not run.
  void lose_disk() const { std::filesystem::remove_all(dir_.path("data")); }
  pid_t pid() const { return service_->pid(); }
  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  // A client of a tenant that has the role admin.
  Client& client() const { return *client_; }
  std::shared_ptr<Client> connect_as(const std::string& tenant) const {
    ConnectOptions options;
    options.tenant = tenant;
    return service_->connect(options);
  }
  msg::ClusterState state() { return client_->cluster().value(); }
  Ran ctl(std::vector<std::string> words) const {
    words.insert(words.begin(), {PRECISCTL_PATH, "--address", address(), "--tenant", "ops",
                                 "--token", "boss", "cluster"});
    return run(words);
  }

 private:
  const std::string name_, memory_;
  const std::vector<std::string> before_;
  const TempDir dir_;
  std::string address_;
  std::optional<ServiceProcess> service_;
  std::shared_ptr<Client> client_;
};

// Waits until the node's view is as expected.
msg::ClusterState await(Node& node, const std::function<bool(const msg::ClusterState&)>& expected);

// The segments that the node stores for the tenant "red".
std::uint64_t stored_at(const Node& node);

std::uint32_t shards_of(const msg::ClusterState& state, const std::string& name);

// Whether exactly these nodes own shards, in equal numbers, and no other node is known.
std::function<bool(const msg::ClusterState&)> shared_by(std::vector<std::string> names);

}  // namespace precis::testing
