// Many client processes of one service. A third of them is killed at random instants, and one is
// stopped in the middle of an operation. The other clients must not be affected, and the service
// must keep nothing of the killed ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/service_process.h"
#include "tests/torture/crowd.h"

namespace precis::torture {

struct ChaosOptions {
  std::uint32_t clients = 64;
  std::uint32_t seconds = 60;  // of killing; 0: three rounds, however long they take
  std::uint32_t seed = 0;
  std::string data_dir;                                                // empty or not existing
  bool tcp = false;                                                    // without shared memory
  std::string log_level = "error";                                     // as precisd's
  std::function<void(double done, const std::string& note)> progress;  // done: from 0 to 1
};

class Chaos {
 public:
  explicit Chaos(ChaosOptions options);

  // Runs everything. kCorruption or kInternal describes the first failure.
  Status all();

  std::uint32_t rounds() const { return rounds_; }
  std::uint64_t killed() const { return killed_; }
  std::uint64_t operations() const { return operations_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t operations_beside_stopped() const { return beside_stopped_; }
  // Connections in addition to the first one of each client: at least so many were lost.
  std::uint64_t connected_again() const { return connected_again_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }  // of the service, in RAM
  // Means over all rounds: of the second before a kill and the two seconds after it. Only if
  // `seconds` is not 0.
  struct Rates {
    double before = 0, first_second = 0, second_second = 0;  // operations/s
  };
  Rates rates() const;

 private:
  Status run();
  Status set_up();
  Status round(bool timed);
  Status kill_a_third();
  // Stops one client while the others continue, then lets it continue, too.
  Status stop_one();
  // Waits until `count` more operations have ended.
  Status wait_for(const std::function<std::uint64_t()>& operations, std::uint64_t count);
  Status end();
  Status put_shared();
  Status check_nothing_left();

  const ChaosOptions options_;
  const std::uint32_t shared_seed_;
  std::mt19937 random_;
  std::unique_ptr<testing::ServiceProcess> service_;
  std::shared_ptr<Client> client_;
  std::optional<Model> model_;
  std::optional<Crowd> crowd_;
  std::uint64_t links_before_ = 0, maps_before_ = 0;
  std::uint32_t rounds_ = 0;
  std::uint64_t killed_ = 0, operations_ = 0, bytes_ = 0, beside_stopped_ = 0, peak_bytes_ = 0;
  std::uint64_t connected_again_ = 0;
  std::vector<std::uint32_t> dead_;  // seeds whose paths may be stored
  std::vector<Rates> measured_;
};

}  // namespace precis::torture
