// A precisd of one's own: a folder, a port, and the power to kill it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "precis/client.h"
#include "tests/integration/process.h"

namespace precis::testing {

// A new folder, removed when destroyed unless it is to be kept.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  void keep() { kept_ = true; }

 private:
  bool kept_ = false;
  std::filesystem::path path_;
};

// Serves `data_dir` on a free port, with 256 MiB unless `flags`, which are more of precisd's, say
// otherwise.
std::vector<std::string> precisd_command(const std::string& data_dir,
                                         const std::vector<std::string>& flags);

class ServiceProcess {
 public:
  // Returns once it is ready; kUnavailable with what it said instead.
  static Result<std::unique_ptr<ServiceProcess>> start(const std::string& data_dir,
                                                       const std::vector<std::string>& flags = {});
  // Of the folder's "data"; one that does not become ready ends the test run.
  explicit ServiceProcess(const TempDir& dir, const std::vector<std::string>& flags = {});

  const std::string& address() const { return address_; }
  pid_t pid() const { return process_->pid(); }
  // A client; failing to connect ends the test run.
  std::shared_ptr<Client> connect(const ConnectOptions& options = {}) const;
  int kill();  // SIGKILL, and waits until it is gone; -SIGKILL unless it had ended before
  int stop();  // SIGTERM; the exit code
  // Of one that has ended by itself, how and what it said at last; empty if it runs.
  std::string last_words();

 private:
  ServiceProcess() = default;
  Status run(const std::string& data_dir, const std::vector<std::string>& flags);

  std::unique_ptr<Process> process_;
  std::string address_;
};

// The value of a row of stats(); a name that is not there ends the test run.
double stat(Client& client, const std::string& name);

}  // namespace precis::testing
