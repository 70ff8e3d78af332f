// Nodes of a cluster: real processes of precisd with a real etcd.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/etcd_members.h"
#include "tests/integration/process.h"
#include "tests/integration/service_process.h"

namespace precis::testing {

// A node of the cluster "precis". It keeps its name, its address and its data when it is started
// again.
class Node {
 public:
  Node(const EtcdMembers& etcd, std::string name, const std::string& more = "",
       std::uint32_t lease_s = 5, std::string memory = "32MiB")
      : name_(std::move(name)), memory_(std::move(memory)) {
    std::ofstream(dir_.path("precisd.toml"))
        << "cluster_etcd = \"" << etcd.urls() << "\"\ncluster_node = \"" << name_
        << "\"\ncluster_lease_s = " << lease_s << "\n"
        << more << "[[tenant]]\nname = 'ops'\ntoken = 'boss'\nrole = 'admin'\n"
        << "[[tenant]]\nname = 'red'\n";
    start();
  }
  void start() {
    std::vector<std::string> flags = {"--config", dir_.path("precisd.toml"), "--memory", memory_};
    if (!address_.empty()) flags.insert(flags.end(), {"--listen", address_});
    service_.emplace(dir_, flags);
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
