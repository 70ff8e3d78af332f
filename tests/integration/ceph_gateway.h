// Ceph's gateway for S3, for a test, on the loopback: a real one, in front of a real Ceph of one
// OSD, with a bucket.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/shared/s3_settings.h"
#include "tests/integration/ceph_cluster.h"
#include "tests/integration/process.h"
#include "tests/unit/store/test_dir.h"

namespace precis::testing {

class CephGateway {
 public:
  // Whether all programs that are needed are installed, and this user may run them.
  static bool available();
  // Returns once the bucket can be written; a gateway that does not start ends the test run. It
  // ends with the object, or with the thread that made it.
  CephGateway();

  // The settings name the bucket and the user who owns it. `space`: the cluster's name.
  S3Settings settings(const std::string& space) const;
  std::string node_settings() const;  // lines of a node's configuration
  // A file with keys.
  std::string keys_file(const std::string& id, const std::string& secret) const;

  // The process ends at once. Its data are in Ceph.
  void kill();
  void start();
  void signal(int number) const;

 private:
  void make_user() const;
  void await_bucket() const;

  const TestDir dir_;
  const std::string port_;
  const CephCluster ceph_{1};
  const std::string conf_;
  std::unique_ptr<Process> process_;
};

}  // namespace precis::testing
