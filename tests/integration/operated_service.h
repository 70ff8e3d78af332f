// A precisd as operators run it: with a configuration file, a log, and a socket for its
// notifications to systemd.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cachesvc/base/descriptor.h"
#include "tests/integration/service_process.h"

namespace precis::testing {

std::string content_of(const std::string& path);

class OperatedService {
 public:
  // Returns once precisd has told systemd that it is ready. Uses these files of `dir`: "data",
  // "precisd.toml" with the content `config`, "log" and "notify".
  OperatedService(const TempDir& dir, const std::string& config,
                  const std::vector<std::string>& flags = {});

  const std::string& address() const { return address_; }
  void write_config(const std::string& config) const;
  // Sends SIGHUP; returns what precisd told systemd until it was ready again.
  std::vector<std::string> reload();
  // Sends SIGTERM; returns what precisd told systemd.
  std::vector<std::string> stop();
  // The next notification to systemd; empty after a minute without one.
  std::string told();
  // For an ended precisd: all that it printed after its first line.
  std::string printed();
  std::string log() const { return content_of(dir_.path("log")); }
  Ran ctl(std::vector<std::string> words) const;

 private:
  const TempDir& dir_;
  Descriptor systemd_;
  std::optional<Process> process_;
  std::string address_;
};

}  // namespace precis::testing
