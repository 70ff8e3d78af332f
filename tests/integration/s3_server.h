// A real SeaweedFS for a test, on the loopback: all its servers in one process, with a bucket that
// S3 requests reach.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cachesvc/net/tls.h"
#include "cachesvc/shared/s3_settings.h"
#include "tests/integration/process.h"
#include "tests/unit/store/test_dir.h"

namespace precis::testing {

class S3Server {
 public:
  // Whether the program is where ./dev installs it.
  static bool available();
  // Returns once the bucket can be written; a SeaweedFS that does not start ends the test run. With
  // `tls`, it has https only; its clients need no certificate. It ends with the object, or with the
  // thread that made it.
  explicit S3Server(std::optional<TlsFiles> tls = {});

  // The settings name the bucket and a user who may do everything. `space`: the cluster's name.
  S3Settings settings(const std::string& space) const;
  std::string url() const { return url_at(address()); }
  std::string address() const { return "127.0.0.1:" + port_; }
  // A file with the keys of a user who may only read.
  std::string keys_of_reader() const;
  // A file with keys.
  std::string keys_file(const std::string& id, const std::string& secret) const;
  // Lines of a node's configuration. `at`: the node reaches it there, such as through a relay.
  std::string node_settings(const std::string& at) const;
  std::string node_settings() const { return node_settings(address()); }

  // The process ends at once, and its data stay.
  void kill();
  void start();
  void signal(int number);
  pid_t pid() const { return process_->pid(); }

 private:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  std::string url_at(const std::string& address) const;
  void await_answer() const;

  const TestDir dir_;
  const std::optional<TlsFiles> tls_;
  const std::string port_;
  std::unique_ptr<Process> process_;
};

}  // namespace precis::testing
