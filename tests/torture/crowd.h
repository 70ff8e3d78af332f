// The client processes of ./dev torture --clients, and their output.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "precis/status.h"
#include "tests/integration/process.h"

namespace precis::torture {

// One chaos_client. Its own thread counts the lines of its output until the process ends.
class Member {
 public:
  Member(const std::string& address, std::uint32_t seed, std::uint32_t shared_seed);
  ~Member();

  std::uint32_t seed() const { return seed_; }
  std::uint64_t operations() const { return operations_; }
  std::uint64_t bytes() const { return bytes_; }
  std::string error() const;  // the first error reported; empty if there is none
  bool ended() const { return ended_; }

  void signal(int number) { process_.signal(number); }
  void kill();  // by SIGKILL; waits for its end and counts all its output
  int stop();   // by SIGTERM; waits for its end and returns as Process::wait()

 private:
  void listen();

  const std::uint32_t seed_;
  testing::Process process_;
  std::atomic<std::uint64_t> operations_{0}, bytes_{0};
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  std::string error_;  // guarded by mutex_
  std::jthread listener_;
};

class Crowd {
 public:
  Crowd(std::string address, std::uint32_t seed, std::uint32_t shared_seed, std::size_t count);

  std::size_t size() const { return members_.size(); }
  std::uint32_t made() const { return made_; }  // number of clients ever started
  Member& member(std::size_t i) { return *members_[i]; }
  // Kills a client and starts a new one in its place. Returns the killed client's seed, whose path
  // may be stored.
  std::uint32_t replace(std::size_t i);

  // Sums over all clients ever started.
  std::uint64_t operations() const;
  std::uint64_t bytes() const;
  std::uint64_t operations_without(const Member& one) const;
  // kInternal with the error of a client that failed without being killed.
  Status first_failure() const;
  // Lets all clients finish their current round of operations and exit. Errors as first_failure().
  // seeds() remains valid.
  Status stop();
  std::vector<std::uint32_t> seeds() const;

 private:
  std::unique_ptr<Member> make();

  const std::string address_;
  const std::uint32_t seed_, shared_seed_;
  std::uint32_t made_ = 0;
  std::vector<std::unique_ptr<Member>> members_;
  std::uint64_t gone_operations_ = 0, gone_bytes_ = 0;
};

}  // namespace precis::torture
