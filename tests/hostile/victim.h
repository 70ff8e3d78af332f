// The attacked precisd, the properties it must keep, and a client that must still be served.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "precis/greeting.h"
#include "tests/hostile/wire.h"
#include "tests/integration/service_process.h"

namespace precis::hostile {

// The outcome of one attack, as written to the JSON file. `issue_row` is the row of the table in
// the issue that requested the attack; 0 means the mutated sessions.
struct Finding {
  unsigned issue_row = 0;
  std::string name;
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::string> wrong;  // empty if the service withstood the attack

  void count(std::string what, double number) { numbers.emplace_back(std::move(what), number); }
  void expect(bool holds, std::string what) {
    if (!holds) wrong.push_back(std::move(what));
  }
};

class Victim {
 public:
  static constexpr std::uint64_t kMemoryBytes = 64ull << 20;
  Victim();

  const Target& target() const { return target_; }
  const std::string& address() const { return service_->address(); }
  pid_t pid() const { return service_->pid(); }
  // Tenants: "alice" and "bob" have a token, "open" has none.
  static Login login(const std::string& tenant);

  // An honest client puts and reads back, `times` times. Returns the first error, or OK.
  Status serve_honest(unsigned times = 1);
  // Checks that the service is alive, serves an honest client, has released descriptors and
  // threads, and stayed within its memory bound.
  void check(Finding& finding);
  // Number of open descriptors that are not files on disk: for example sockets and memory files.
  std::uint64_t descriptors() const;
  bool is_alive() { return service_->last_words().empty(); }

 private:
  testing::TempDir dir_;
  std::unique_ptr<testing::ServiceProcess> service_;
  Target target_;
  std::uint64_t base_descriptors_ = 0, base_threads_ = 0, honest_seed_ = 1;
};

std::uint64_t threads_of(pid_t pid);

}  // namespace precis::hostile
