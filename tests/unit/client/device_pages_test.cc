// Gets into pages in device memory, and pushes out of them: the same results as on the host.
#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "client/src/paged_rows.h"
#include "tests/unit/client/device_client.h"
#include "tests/unit/client/pages_server.h"
#include "tests/unit/client/serving.h"
#include "tests/unit/kernels/gpu_pages.h"

namespace {

using namespace precis;
using namespace precis::testing;
using kernels::test::DevicePages;
using kernels::test::Gpu;

constexpr std::uint32_t kRows = 16, kPages = 400;

// Pages of each kind on the host and, with the same bytes, on the device; a table for the heads'
// rows.
struct BothPages {
  BothPages(Gpu& gpu, const ModelSpec& model, std::uint32_t heads, std::uint32_t rows_of_a_head)
      : keys(random, Order::kRowsApart, kPages, kRows, model.head_dim, model.dtype),
        values(random, Order::kColumns, kPages, kRows, model.head_dim, model.dtype),
        device_keys(gpu, keys),
        device_values(gpu, values) {
    const std::uint32_t pages = (rows_of_a_head + kRows - 1) / kRows;
    table = random_table(random, kPages, std::size_t{heads} * pages);
    for (std::uint32_t i = 0; i <= heads; ++i) starts.push_back(i * pages);
  }
  PagesOut on_host() {
    keys.rows.data = keys.memory.data();
    values.rows.data = values.memory.data();
    return {keys.rows, values.rows, table, starts};
  }
  PagesOut on_device() const {
    return {device_keys.pages.rows, device_values.pages.rows, table, starts};
  }

  std::mt19937 random{kServingSeed};
  RandomPages keys, values;
  DevicePages device_keys, device_values;
  std::vector<std::uint32_t> table, starts;
};

TEST_CASE("a client without a page_mover takes no pages on a device", "[gpu][client]") {
  Gpu gpu;
  const Serving serving = one_segment(small_model(), 600, 600);
  FakeServer server(serving);
  const BothPages both(gpu, serving.model, 6, 400);
  const auto got = server.connect().value()->get(match_of(serving.model, serving.segments),
                                                 Budget::all(), {.pages = both.on_device()});
  CHECK(got.status().code() == StatusCode::kUnsupported);
  CHECK_THAT(got.status().message(), Catch::Matchers::Contains("page_mover"));
}

TEST_CASE("a get into pages on a device leaves there what one into pages on the host does",
          "[gpu][client]") {
  Gpu gpu;
  const Serving serving =
      three_segments(small_model(GENERATE(Dtype::kBf16, Dtype::kF32)), GENERATE(false, true));
  FakeServer server(serving);
  const auto client = connect_with_devices(server);
  const auto match = match_of(serving.model, serving.segments);
  const std::uint32_t head_begin = GENERATE(0u, 1u);
  GetOptions options{.head_begin = head_begin};
  const std::uint32_t heads = serving.model.num_kv_heads - head_begin;
  BothPages both(gpu, serving.model, serving.model.num_layers * heads, 501);
  options.pages = both.on_host();
  REQUIRE(client->get(match, Budget::all(), options).value().wait().ok());
  options.pages = both.on_device();
  const auto prefix = client->get(match, Budget::all(), options).value();
  for (std::uint32_t l : {2u, 0u}) REQUIRE(prefix.wait_layer(l).ok());
  REQUIRE(prefix.wait().ok());
  CHECK(both.device_keys.now(gpu) == both.keys.memory);
  CHECK(both.device_values.now(gpu) == both.values.memory);
  CHECK(both.device_keys.pages.memory != both.keys.memory);  // as before the get
}

TEST_CASE("a layer that fails its checksums leaves nothing in pages on a device", "[gpu][client]") {
  Gpu gpu;
  Serving serving = one_segment(small_model(), 600, 600);
  serving.damage = [](ServedBytes& served) { served.bytes.front() ^= std::byte{1}; };
  FakeServer server(serving);
  const auto client = connect_with_devices(server);
  const auto match = match_of(serving.model, serving.segments);
  const BothPages both(gpu, serving.model, 6, 400);
  const auto prefix = client->get(match, Budget::all(), {.pages = both.on_device()}).value();
  CHECK(prefix.wait().code() == StatusCode::kCorruption);
  CHECK(both.device_keys.now(gpu) == both.keys.memory);
}

TEST_CASE("pages that say wrongly that they are on a device are refused by name", "[gpu][client]") {
  Gpu gpu;
  const Serving serving = one_segment(small_model(), 600, 600);
  FakeServer server(serving);
  const auto client = connect_with_devices(server);
  const auto match = match_of(serving.model, serving.segments);
  BothPages both(gpu, serving.model, 6, 400);
  using Catch::Matchers::Contains;
  using Catch::Matchers::StartsWith;
  const auto refused = [&](const std::function<void(PagesOut&)>& change) {
    PagesOut pages = both.on_device();
    change(pages);
    const Status status = client->get(match, Budget::all(), {.pages = pages}).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  const std::string on_host = refused([&](auto& p) { p.keys.data = both.keys.memory.data(); });
  CHECK_THAT(on_host, StartsWith("pages.keys: byte 0 of "));
  CHECK_THAT(on_host, Contains(" is not in the memory of CUDA device 0"));
  const auto grow = [](auto& p) {
    p.values.num_pages += (std::uint64_t{1} << 44) / p.values.page_stride_bytes;
  };
  CHECK_THAT(refused(grow), StartsWith("pages.values: byte "));
  std::vector<std::uint32_t> table = both.table;
  table[7] = kPages;
  CHECK_THAT(refused([&](auto& p) { p.table = table; }),
             StartsWith("pages: table[7] is 400, there are 400 pages"));
}

TEST_CASE("what a device's pages hold is pushed like what the host's do", "[gpu][client]") {
  constexpr std::uint32_t kNew = PagesServer::kEnd - PagesServer::kBegin;
  Gpu gpu;
  PagesServer fake;
  const auto client = connect_with_devices(fake.server);
  const ModelSpec spec = small_model(GENERATE(Dtype::kF32, Dtype::kBf16));
  const bool whole_path = GENERATE(false, true);
  const std::uint32_t num_tokens = whole_path ? PagesServer::kEnd : kNew;
  const std::uint32_t first_row = GENERATE(0u, 13u);
  BothPages both(gpu, spec, spec.num_kv_heads, first_row + num_tokens);
  const std::vector<TokenId> tokens(PagesServer::kEnd, 1);
  for (const PagesOut& pages : {both.on_host(), both.on_device()}) {
    Put put = client->begin_put(Model{spec, {}, {}}, tokens).value();
    for (std::uint32_t layer = 0; layer < spec.num_layers; ++layer) {
      LayerPush push;
      push.pages =
          PagesIn{pages.keys, pages.values, pages.table, spec.num_kv_heads, first_row, num_tokens};
      REQUIRE(put.start_layer(layer, push).ok());
    }
    REQUIRE(put.commit().ok());
  }
  REQUIRE(fake.taken.size() == 2 * spec.num_layers);
  for (std::uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    const Taken &host = fake.taken[layer], &device = fake.taken[spec.num_layers + layer];
    CHECK(device.message.keys_head_stride == host.message.keys_head_stride);
    for (std::uint32_t h = 0; h < spec.num_kv_heads; ++h) {
      const std::size_t at = h * host.message.keys_head_stride;
      const std::size_t size = std::size_t{kNew} * spec.head_dim * dtype_size_bytes(spec.dtype);
      const auto rows_of = [&](const std::vector<std::byte>& bytes) {
        return std::vector(bytes.begin() + at, bytes.begin() + at + size);
      };
      CHECK(rows_of(device.keys) == rows_of(host.keys));
      CHECK(rows_of(device.values) == rows_of(host.values));
    }
  }
}

}  // namespace
