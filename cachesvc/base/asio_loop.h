// The event loop of a machine. Boost.Asio implements it and appears in no header (except asio.h).
#pragma once

#include "cachesvc/base/event_loop.h"

namespace precis {

class AsioLoop final : public EventLoop {
 public:
  AsioLoop();
  ~AsioLoop() override;
  AsioLoop(const AsioLoop&) = delete;
  AsioLoop& operator=(const AsioLoop&) = delete;

  const Clock& clock() const override;
  void run() override;
  void run_lent() override;
  bool drive(const std::function<void()>& begin, const std::function<bool()>& done) override;
  void stop() override;
  void post(std::function<void()> fn) override;
  bool on_loop_thread() const override;
  std::unique_ptr<Timer> after(std::chrono::nanoseconds delay, std::function<void()> fn) override;
  std::unique_ptr<Watch> watch_readable(int fd, std::function<void()> fn) override;
  std::unique_ptr<SocketWatch> watch_socket(int fd, std::function<void()> readable,
                                            std::function<void()> writable) override;
  std::unique_ptr<Watch> add_poller(Poller poller) override;
  void spin_for(std::chrono::nanoseconds spin) override;
  void kick() override;
  void rest() override;
  void expect() override;
  std::uint64_t rounds() const override;

 private:
  friend struct AsioAccess;  // asio.h, for sockets on the same loop
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
