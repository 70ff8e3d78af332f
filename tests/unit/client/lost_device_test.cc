// Pages on a device that fails; only the emulator can fail on request.
#include <catch2/catch.hpp>
#include <vector>

#include "tests/unit/client/device_client.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/kernels/cuda_emulator/cuda_runtime.h"
#include "tests/unit/kernels/gpu_pages.h"

namespace {

using namespace precis;
using namespace precis::testing;
using kernels::test::DevicePages;
using kernels::test::Gpu;

constexpr std::uint32_t kRows = 16, kPages = 200, kOfHead = 25;

TEST_CASE("a get whose pages' device fails says so, and ends with it", "[client]") {
  Gpu gpu;
  const Serving serving = one_segment(small_model(), 600, 600);
  FakeServer server(serving);
  const auto client = connect_with_devices(server);
  const ModelSpec& model = serving.model;
  std::mt19937 random(kServingSeed);
  const DevicePages pages(
      gpu, RandomPages(random, Order::kRows, kPages, kRows, model.head_dim, model.dtype));
  const std::uint32_t heads = model.num_layers * model.num_kv_heads;
  const auto table = random_table(random, kPages, std::size_t{heads} * kOfHead);
  std::vector<std::uint32_t> starts;
  for (std::uint32_t i = 0; i <= heads; ++i) starts.push_back(i * kOfHead);
  const PagesOut out{pages.pages.rows, pages.pages.rows, table, starts};
  const auto match = match_of(model, serving.segments);
  const auto prefix = client->get(match, Budget::all(), {.pages = out}).value();
  SECTION("for want of room, and goes on where there is some") {
    cuda_emulator::allocations_left = 0;
    CHECK(prefix.wait().code() == StatusCode::kOutOfSpace);
    cuda_emulator::allocations_left = -1;
    CHECK(prefix.wait().ok());
  }
  SECTION("for good") {
    cuda_emulator::lost = true;
    CHECK(prefix.wait().code() == StatusCode::kInternal);
    CHECK(client->get(match, Budget::all(), {.pages = out}).status().code() ==
          StatusCode::kInternal);
    cuda_emulator::lost = false;
  }
}

}  // namespace
