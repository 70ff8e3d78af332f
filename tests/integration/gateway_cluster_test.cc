// Nodes that share a bucket in the S3 of a real Ceph: the cases of shared_cluster_cases.cc.
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>

#include "cachesvc/shared/s3_tier.h"
#include "tests/catch_runner.h"
#include "tests/integration/ceph_gateway.h"
#include "tests/integration/shared_cluster.h"

namespace {

using namespace precis;
using namespace precis::testing;

class GatewayStorage final : public NodesStorage {
 public:
  std::string node_settings() const override { return gateway_.node_settings(); }
  std::unique_ptr<SharedTier> connect(const std::string& cluster_name) const override {
    return connect_s3(gateway_.settings(cluster_name), {}).value();
  }
  void signal(int number) const override { gateway_.signal(number); }

 private:
  const CephGateway gateway_;
};

}  // namespace

std::unique_ptr<NodesStorage> precis::testing::nodes_storage;

int main(int argc, char** argv) {
  if (!CephGateway::available() || !EtcdMembers::installed()) {
    std::printf("skipped: it needs root, etcd-server and the Debian packages of Ceph's gateway\n");
    return 77;
  }
  nodes_storage = std::make_unique<GatewayStorage>();
  const int failed = run_test_cases(argc, argv);
  nodes_storage.reset();
  return failed;
}
