// One run of the torture: repeatedly kills a service under load and checks the data that it must
// have kept.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/integration/service_process.h"
#include "tests/torture/workers.h"

namespace precis::torture {

struct RunOptions {
  std::uint32_t kills = 100;
  std::uint32_t seed = 0;  // of every choice; the instants of kills are not reproducible
  std::string data_dir;    // empty or not existing
  std::function<void(std::uint32_t kills)> progress;
};

class Run {
 public:
  explicit Run(RunOptions options);

  // Runs everything. kCorruption or another error, with the kill at which it occurred.
  Status all();
  std::uint32_t kills() const { return kills_; }
  const Counts& counts() const { return counts_; }
  std::uint64_t segments_checked() const { return segments_checked_; }
  std::uint64_t bytes_checked() const { return bytes_checked_; }

 private:
  Status set_up();
  Status round(std::uint32_t seed);
  Status start();
  std::vector<std::string> flags() const;  // of precisd
  // Kills a service before it reports that it is ready.
  Status kill_while_starting(std::uint32_t delay_us);
  Status check();
  Status check_space(std::uint64_t segments, std::uint64_t payload_bytes);
  Status wait_for_tidiness(std::uint64_t payload_bytes);
  Status end();

  const RunOptions options_;
  std::vector<Slot> slots_;
  std::unique_ptr<testing::ServiceProcess> service_;
  std::shared_ptr<Client> client_;
  std::optional<Model> model_;
  Counts counts_;
  std::uint32_t kills_ = 0;
  std::uint64_t segments_checked_ = 0, bytes_checked_ = 0;
};

}  // namespace precis::torture
