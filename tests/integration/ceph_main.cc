// ./dev cluster up --ceph: runs a Ceph on this machine until SIGTERM or SIGINT. Writes a copy of
// its configuration to the given file once it can be used.
#include <cstdio>
#include <filesystem>

#include "tests/integration/ceph_cluster.h"
#include "tests/integration/until_ended.h"

int main(int argc, char** argv) {
  if (argc != 2 || !precis::testing::CephCluster::available()) {
    std::fprintf(stderr,
                 "usage: precis_ceph CONF, as root, with ceph-mon and ceph-osd installed\n");
    return 2;
  }
  const precis::testing::EndSignals signals;
  const precis::testing::CephCluster ceph;
  const auto write = [&](const std::filesystem::path& unfinished) {
    std::filesystem::copy_file(ceph.conf(), unfinished);
  };
  precis::testing::show_until_ended(signals, argv[1], write);
  return 0;
}
