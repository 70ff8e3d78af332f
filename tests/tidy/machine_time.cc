// The rule about time: product code takes time, threads and randomness from a Runtime
// (cachesvc/base/runtime.h), so that it also runs in simulated time.
#include <array>
#include <sstream>
#include <string_view>

#include "rules.h"

namespace precis::tidy {
namespace {

constexpr std::array<std::string_view, 12> kWords = {
    "steady_clock::now", "system_clock::now", "sleep_for",      "sleep_until",
    "random_device",     "jthread",           "std::thread(",   "std::thread ",
    "SystemClock",       "MachineRuntime",    "ThreadExecutor", "AsioLoop"};

// Beginnings of the paths that may use these words.
constexpr std::array<std::string_view, 20> kHomes = {
    // the machine's implementations of a Runtime's parts
    "cachesvc/base/asio", "cachesvc/base/clock", "cachesvc/base/runtime",
    "cachesvc/base/thread_executor",
    // programs and handles that choose the machine
    "cachesvc/main.cc", "cachesvc/embed/open.cc", "cachesvc/server/accept_loss.cc",
    "client/src/connect.cc", "client/src/calls.cc", "client/cli/", "client/python/",
    "client/examples/",
    // the store on disk and sockets, which exist on a machine only
    "cachesvc/store/ack_record", "cachesvc/store/extent_", "cachesvc/store/info_log.cc",
    "cachesvc/store/numbered_rows.cc", "cachesvc/store/payload_writer",
    "cachesvc/store/space_guard.cc", "cachesvc/transport/socket_transport.cc",
    // helper threads of one computation, whose result does not depend on them
    "kernels/common/thread_pool"};

bool is_product(std::string_view path) {
  return path.starts_with("cachesvc/") || path.starts_with("client/") ||
         path.starts_with("kernels/") || path.starts_with("schema/");
}

}  // namespace

Findings check_machine_time(const Tree& tree) {
  Findings findings;
  for (const auto& [path, content] : tree) {
    const std::string_view of = path;
    if (!is_product(of) || !(of.ends_with(".cc") || of.ends_with(".h") || of.ends_with(".cu"))) {
      continue;
    }
    bool home = false;
    for (const std::string_view beginning : kHomes) home = home || of.starts_with(beginning);
    if (home) continue;
    std::istringstream lines(content);
    std::size_t number = 1;
    for (std::string line; std::getline(lines, line); ++number) {
      for (const std::string_view word : kWords) {
        if (line.find(word) == line.npos || line.find("//") < line.find(word)) continue;
        findings.push_back(path + ":" + std::to_string(number) + ": '" + std::string(word) +
                           "': take time, threads and randomness from a Runtime");
      }
    }
  }
  return findings;
}

}  // namespace precis::tidy
