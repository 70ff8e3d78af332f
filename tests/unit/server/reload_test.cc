#include "cachesvc/server/reload.h"

#include <catch2/catch.hpp>
#include <future>
#include <vector>

#include "cachesvc/embed/loopback.h"
#include "cachesvc/server/service.h"
#include "tests/unit/store/test_dir.h"

namespace precis {

TEST_CASE("every reload ends, and of those that wait the latest reads", "[unit][server]") {
  const testing::TestDir dir;
  Config config;
  config.data_dir = dir.path();
  config.listen = "loopback:reloaded";
  config.memory_bytes = 64u << 20;
  config.compute_threads = 1;
  config.device = "cpu";
  config.log_level = "error";
  MachineRuntime runtime;
  const auto service = Service::create(config, runtime, [](EventLoop& loop) {
    return Result<std::unique_ptr<Transport>>(make_loopback_server(loop, make_loopback_net()));
  });
  REQUIRE(service.ok());
  std::promise<void> others_wait;
  std::vector<int> read, ended;
  const auto reload = [&](int index) {
    (*service)->reload(
        [&, index] {
          if (index == 0) others_wait.get_future().wait();
          read.push_back(index);
          return Result<Config>(config);
        },
        [&, index] {
          ended.push_back(index);
          if (index == 3) (*service)->stop();
        });
  };
  for (const int index : {0, 1, 2, 3}) reload(index);
  (*service)->loop().post([&] { others_wait.set_value(); });
  (*service)->run();
  CHECK(read == std::vector<int>{0, 3});
  CHECK(ended == std::vector<int>{0, 1, 2, 3});
}

}  // namespace precis
