// ./dev cluster up --s3: runs a SeaweedFS on this machine until SIGTERM or SIGINT. Writes lines of
// a node's configuration to the given file once the bucket can be used.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/integration/s3_server.h"
#include "tests/integration/until_ended.h"

int main(int argc, char** argv) {
  if (argc != 2 || !precis::testing::S3Server::available()) {
    std::fprintf(stderr, "usage: precis_s3 FILE, after ./dev has installed SeaweedFS\n");
    return 2;
  }
  const precis::testing::EndSignals signals;
  const precis::testing::S3Server server;
  const auto write = [&](const std::filesystem::path& unfinished) {
    std::ofstream(unfinished) << server.node_settings();
  };
  precis::testing::show_until_ended(signals, argv[1], write);
  return 0;
}
