// ./dev cluster up --ceph: runs a Ceph on this machine until SIGTERM or SIGINT. Writes a copy of
// its configuration to the given file once it can be used.
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "tests/integration/ceph_cluster.h"

int main(int argc, char** argv) {
  if (argc != 2 || !precis::testing::CephCluster::available()) {
    std::fprintf(stderr,
                 "usage: precis_ceph CONF, as root, with ceph-mon and ceph-osd installed\n");
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const precis::testing::CephCluster ceph;
  const std::filesystem::path conf = argv[1], unfinished = conf.string() + ".new";
  std::filesystem::copy_file(ceph.conf(), unfinished);
  std::filesystem::rename(unfinished, conf);
  int signal = 0;
  sigwait(&ends, &signal);
  std::filesystem::remove(conf);
  return 0;
}
