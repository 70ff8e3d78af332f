// A real Ceph for a test, on the loopback: one monitor, some OSDs, and no manager.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cachesvc/shared/rados_library.h"
#include "cachesvc/shared/rados_tier.h"
#include "tests/integration/process.h"
#include "tests/unit/store/test_dir.h"

namespace precis::testing {

class CephCluster {
 public:
  // Whether all programs of Ceph that are needed are installed, and this user may run them.
  static bool available();
  // Returns once the pool can be written; a Ceph that does not start ends the test run. Every row
  // and object is on min(3, `osds`) OSDs. The cluster ends with the object, or with the thread that
  // made it.
  explicit CephCluster(std::size_t osds = 3);
  ~CephCluster();
  CephCluster(const CephCluster&) = delete;
  CephCluster& operator=(const CephCluster&) = delete;

  std::string conf() const { return path("ceph.conf"); }
  std::string pool() const { return "precis"; }
  // This user may read and write the pool, and nothing else.
  std::string user() const { return "client.precis"; }
  // The settings name that user and pool.
  RadosSettings settings(const std::string& space) const;

  // The process of an OSD ends at once, and its data stay.
  void kill_osd(std::size_t osd);
  void start_osd(std::size_t osd);
  void signal_osd(std::size_t osd, int number);
  pid_t osd_pid(std::size_t osd) const { return osds_[osd]->pid(); }
  const std::string& monitor_port() const { return port_; }
  pid_t monitor_pid() const { return monitor_->pid(); }
  std::size_t osds_up() const;
  // Waits until `count` OSDs are up; a minute without them ends the test run.
  void await_osds(std::size_t count) const;
  // Sends a command to the monitor, as client.admin; `command` is the inside of a JSON object. A
  // command that fails ends the test run. Returns its output.
  std::string command(const std::string& command) const;
  // Writes a copy of conf() with `lines` at its end. Returns its path.
  std::string conf_with(const std::string& lines) const;
  // A new key, as text.
  static std::string new_key();

 private:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  void write_files() const;
  void make_stores() const;
  void connect();

  const TestDir dir_;
  const std::string port_;
  std::unique_ptr<Process> monitor_;
  std::vector<std::unique_ptr<Process>> osds_;
  std::vector<std::string> uuids_;
  rados::RadosLibrary library_;
  rados_t admin_ = nullptr;
};

}  // namespace precis::testing
