// The simulated service: a real one over a store in memory that fails, fills up, and loses its last
// writes when the service is killed or the power goes.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/embed/loopback.h"
#include "cachesvc/server/service.h"
#include "precis/client.h"
#include "tests/simulate/simulation.h"
#include "tests/unit/store/memory_payload.h"
#include "tests/unit/store/memory_rows.h"

namespace precis::simulate {

// All functions are called on simulated threads.
class ServiceHost {
 public:
  // `folder`: an existing folder, in which nothing is kept. `max_disk_bytes`: 0 for no limit.
  ServiceHost(Simulation& machine, std::string folder, std::uint64_t max_disk_bytes);
  ~ServiceHost();
  ServiceHost(const ServiceHost&) = delete;
  ServiceHost& operator=(const ServiceHost&) = delete;

  Status start();
  void stop();  // in order
  // Cuts all connections, forgets all that was not as durable as the crash demands, and returns
  // once the old process is gone.
  enum class Crash { kKill, kPower };
  void crash(Crash how);
  bool up() const { return service_ != nullptr; }
  // The number of crashes that have begun.
  std::uint64_t crashes() const { return crashes_; }
  std::uint64_t power_losses() const { return power_losses_; }

  // A client with a loop of its own.
  Result<std::shared_ptr<Client>> connect(std::uint32_t deadline_ms);

  testing::MemoryRows& rows() { return *rows_; }
  testing::MemoryValues& values() { return *values_; }

 private:
  class CutTransport;
  void end_service();

  Simulation& machine_;
  const std::string folder_;
  const std::uint64_t max_disk_bytes_;
  const std::shared_ptr<LoopbackNet> net_ = make_loopback_net();
  std::unique_ptr<testing::MemoryRows> rows_ = std::make_unique<testing::MemoryRows>();
  std::unique_ptr<testing::MemoryValues> values_ = std::make_unique<testing::MemoryValues>();
  std::unique_ptr<Service> service_;
  CutTransport* transport_ = nullptr;  // the service's
  bool ended_ = false;                 // the service's run() has returned
  std::uint64_t crashes_ = 0, power_losses_ = 0;
};

}  // namespace precis::simulate
