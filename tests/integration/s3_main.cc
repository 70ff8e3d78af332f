// ./dev cluster up --s3: runs a SeaweedFS on this machine until SIGTERM or SIGINT. Writes lines of
// a node's configuration to the given file once the bucket can be used.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/integration/s3_server.h"

int main(int argc, char** argv) {
  if (argc != 2 || !precis::testing::S3Server::available()) {
    std::fprintf(stderr, "usage: precis_s3 FILE, after ./dev has installed SeaweedFS\n");
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const precis::testing::S3Server server;
  const std::filesystem::path settings = argv[1], unfinished = settings.string() + ".new";
  std::ofstream(unfinished) << server.node_settings();
  std::filesystem::rename(unfinished, settings);
  int signal = 0;
  sigwait(&ends, &signal);
  std::filesystem::remove(settings);
  return 0;
}
