// Nodes that share a bucket of S3: the cases of shared_cluster_cases.cc.
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <memory>

#include "cachesvc/shared/s3_tier.h"
#include "tests/catch_runner.h"
#include "tests/integration/s3_server.h"
#include "tests/integration/shared_cluster.h"

namespace {

using namespace precis;
using namespace precis::testing;

class S3Storage final : public NodesStorage {
 public:
  std::string node_settings() const override { return server_.node_settings(); }
  std::unique_ptr<SharedTier> connect(const std::string& cluster_name) const override {
    return connect_s3(server_.settings(cluster_name), {}).value();
  }
  void signal(int number) const override { ::kill(server_.pid(), number); }

 private:
  const S3Server server_;
};

}  // namespace

std::unique_ptr<NodesStorage> precis::testing::nodes_storage;

int main(int argc, char** argv) {
  if (!S3Server::available() || !EtcdMembers::installed()) {
    std::printf("skipped: ./dev test installs SeaweedFS and etcd-server\n");
    return 77;
  }
  nodes_storage = std::make_unique<S3Storage>();
  const int failed = run_test_cases(argc, argv);
  nodes_storage.reset();
  return failed;
}
