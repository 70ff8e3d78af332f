// The precisd that is attacked, what it must not lose, and a client that must still be served.
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

// The outcome of one attack, as it goes to the JSON file. `issue_row` is the row of the table in
// the issue that asked for it; 0 stands for mutated sessions and the neighbour.
struct Finding {
  unsigned issue_row = 0;
  std::string name;
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::string> wrong;  // empty: it held

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

  // An honest client puts and reads back, `times` times; the first error, or OK.
  Status serve_honest(unsigned times = 1);
  // That it is alive, within its bounds, lets go of what it held, and serves an honest client.
  void check(Finding& finding);
  // Sockets and memory files that are open once all of others are closed, at most `patience` later.
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
