// A precisd that can be killed and started again, and puts and reads of whole paths.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace precis::testing {

class StoredFixture {
 protected:
  explicit StoredFixture(std::uint32_t seed) : random(seed) {}

  TempDir dir;
  std::unique_ptr<ServiceProcess> service = std::make_unique<ServiceProcess>(dir);
  std::shared_ptr<Client> client = service->connect();
  Model model = client->register_model(tiny_model()).value();
  std::mt19937 random;

  msg::SegmentInfo put(const std::vector<TokenId>& path, const Kv& kv, const PutOptions& how,
                       Durability durability = Durability::kWal) {
    auto stored = put_all(*client, model, path, kv, how, durability);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    return *stored;
  }
  PrefixCopy read(const std::vector<TokenId>& path, const Budget& keep = Budget::all()) {
    auto copy = read_all(*client, model, path, keep);
    INFO(copy.status().to_string());
    REQUIRE(copy.ok());
    return *copy;
  }
  void restart() {
    service = std::make_unique<ServiceProcess>(dir);
    client = service->connect();
  }
};

}  // namespace precis::testing
