// A precisd as an operator has it: a configuration file, a log, and a socket to which it tells
// systemd how it is.
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
  // Returns once it has told systemd that it is ready. Uses "data", "precisd.toml" holding
  // `config`, "log" and "notify" of `dir`.
  OperatedService(const TempDir& dir, const std::string& config,
                  const std::vector<std::string>& flags = {});

  const std::string& address() const { return address_; }
  void write_config(const std::string& config) const;
  // SIGHUP; what precisd told systemd until it was ready again.
  std::vector<std::string> reload();
  // SIGTERM; what it told systemd.
  std::vector<std::string> stop();
  // The next thing it tells systemd; empty after a minute without one.
  std::string told();
  // Once it has ended: all that it printed after its first line.
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
