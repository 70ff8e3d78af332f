// Requests to the admin port of a precisd at a fixed rate, as monitoring and a dashboard make them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "cachesvc/base/descriptor.h"
#include "precis/status.h"

namespace precis::bench {

class AdminLoad {
 public:
  // Connects. `port` is one of 127.0.0.1. The requests begin with run(true).
  static Result<std::unique_ptr<AdminLoad>> open(std::uint16_t port, unsigned per_second);
  ~AdminLoad();

  // Starts or pauses the requests. The first one follows at once.
  void run(bool on) { on_ = on; }
  std::uint64_t answered() const { return answered_; }
  Status status() const;  // not OK once a request has failed

 private:
  AdminLoad(Descriptor socket, unsigned per_second);
  void send_all(unsigned per_second);
  bool ask(const std::string& path);

  const Descriptor socket_;
  std::atomic<bool> on_ = false, ended_ = false, failed_ = false;
  std::atomic<std::uint64_t> answered_ = 0;
  std::thread thread_;
};

// A port of 127.0.0.1 that nobody listens on now.
std::uint16_t free_port();

}  // namespace precis::bench
