// A real etcd for a test, of one or several members on the loopback.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/net/tls.h"
#include "tests/integration/process.h"
#include "tests/integration/service_process.h"

namespace precis::testing {

class EtcdMembers {
 public:
  static bool installed();
  // Returns once it answers; an etcd that does not ends the test run. With `tls`, its clients need
  // https and must show a certificate that tls->ca has signed.
  explicit EtcdMembers(std::size_t count = 1, std::optional<TlsFiles> tls = {});

  // As cluster_etcd: the URLs of all members.
  std::string urls() const;
  std::string url(std::size_t member) const;
  std::size_t size() const { return ports_.size(); }
  // The process of a member ends at once, and its data stay.
  void kill(std::size_t member);
  void start(std::size_t member);
  // Lets the member stand still for `time`. Returns when it goes on.
  void pause(std::size_t member, std::chrono::milliseconds time) const;
  // Copies the data of a member that does not run, and gives them back to it.
  void save(std::size_t member) const;
  void restore(std::size_t member) const;
  // The member that leads the others.
  std::size_t leader() const;

 private:
  void await_answer() const;

  const TempDir dir_;
  const std::optional<TlsFiles> tls_;
  std::vector<std::string> ports_, peer_ports_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace precis::testing
