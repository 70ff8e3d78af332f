// A precisd for a test: a folder, a port, and a way to kill it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "precis/client.h"
#include "tests/integration/process.h"

namespace precis::testing {

// A new folder; the destructor removes it unless it is to be kept.
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

// Serves `data_dir` on a free port with 256 MiB; `flags` are further flags of precisd, which may
// change both.
std::vector<std::string> precisd_command(const std::string& data_dir,
                                         const std::vector<std::string>& flags);

class ServiceProcess {
 public:
  // Returns once it is ready; otherwise kUnavailable with its output.
  static Result<std::unique_ptr<ServiceProcess>> start(const std::string& data_dir,
                                                       const std::vector<std::string>& flags = {});
  // Uses the folder's "data"; a service that does not become ready ends the test run. `before`: the
  // words of a command that runs the command after it, such as /usr/bin/env with variables.
  explicit ServiceProcess(const TempDir& dir, const std::vector<std::string>& flags = {},
                          const std::vector<std::string>& before = {});

  const std::string& address() const { return address_; }
  pid_t pid() const { return process_->pid(); }
  // A client; failing to connect ends the test run.
  std::shared_ptr<Client> connect(const ConnectOptions& options = {}) const;
  int kill();  // SIGKILL, and waits until it is gone; -SIGKILL unless it had ended before
  // SIGTERM; returns the exit code. A precisd that has not stopped after two minutes is killed.
  int stop();
  // For a service that ended by itself: how, and its last output; empty if it runs.
  std::string last_words();

 private:
  ServiceProcess() = default;
  Status run(const std::string& data_dir, const std::vector<std::string>& flags,
             std::vector<std::string> before);

  std::unique_ptr<Process> process_;
  std::string address_;
};

// The value of a row of stats(); a missing name ends the test run.
double stat(Client& client, const std::string& name);

}  // namespace precis::testing
