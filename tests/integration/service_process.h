// A precisd of one's own: a folder, a port, and the power to kill it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "precis/client.h"
#include "tests/integration/process.h"

namespace precis::testing {

// A new folder, removed when destroyed.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

class ServiceProcess {
 public:
  // Serves TempDir's "data" on a free port; returns once it is ready. `flags`: more of precisd's.
  explicit ServiceProcess(const TempDir& dir, std::vector<std::string> flags = {});

  const std::string& address() const { return address_; }
  // A client; failing to connect ends the test run.
  std::shared_ptr<Client> connect(const ConnectOptions& options = {}) const;
  void kill();  // SIGKILL, and waits until it is gone
  int stop();   // SIGTERM; the exit code

 private:
  std::unique_ptr<Process> process_;
  std::string address_;
};

// The value of a row of stats(); a name that is not there ends the test run.
double stat(Client& client, const std::string& name);

}  // namespace precis::testing
