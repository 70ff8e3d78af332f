// A push with keys and values in pages.
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "cachesvc/base/asio_loop.h"
#include "client/src/paged_rows.h"
#include "client/src/staging_pool.h"
#include "precis/limits.h"
#include "tests/unit/client/pages_server.h"
#include "tests/unit/client/random_pages.h"
#include "tests/unit/client/stored_prefix.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20251125, kBegin = PagesServer::kBegin, kEnd = PagesServer::kEnd,
                        kNew = kEnd - kBegin;

class PagesFixture {
 protected:
  static constexpr std::uint32_t kRows = 3, kPages = 20, kOfHead = 6;
  PagesServer fake;
  std::shared_ptr<Client> client = fake.server.connect().value();
  const ModelSpec spec = small_model(Dtype::kF32);
  std::mt19937 random{kSeed};
  RandomPages keys{random, Order::kColumns, kPages, kRows, spec.head_dim, spec.dtype};
  RandomPages values{random, Order::kRows, kPages, kRows, spec.head_dim, spec.dtype};
  std::vector<std::uint32_t> table = random_table(random, kPages, 2 * kOfHead);

  Put begin() {
    const std::vector<TokenId> tokens(kEnd, 1);
    return client->begin_put(Model{spec, {}, {}}, tokens).value();
  }
  LayerPush push(std::uint32_t first_row, std::uint32_t num_tokens) const {
    LayerPush push;
    push.pages = PagesIn{keys.rows, values.rows, table, spec.num_kv_heads, first_row, num_tokens};
    return push;
  }
  // The rows of both heads, one after the other.
  std::vector<std::byte> expected(const RandomPages& pages, std::uint32_t first_row,
                                  std::uint32_t num_tokens) const {
    const std::size_t head_bytes = std::size_t{num_tokens} * spec.head_dim * 4;
    std::vector<std::byte> rows(2 * head_bytes);
    for (std::uint32_t h = 0; h < 2; ++h) {
      gather_rows(pages.rows, std::span(table).subspan(h * kOfHead, kOfHead), first_row, num_tokens,
                  rows.data() + h * head_bytes);
    }
    return rows;
  }
  void overwrite() {
    for (std::byte& b : keys.memory) b = std::byte{0};
    for (std::byte& b : values.memory) b = std::byte{0};
  }
};

TEST_CASE_METHOD(PagesFixture, "rows of pages are pushed from any row on", "[client]") {
  const std::uint32_t first_row = GENERATE(0u, 2u, 7u);
  Put put = begin();
  const auto queries = expected(keys, 0, 16);
  LayerPush pushed = push(first_row, kNew);
  pushed.queries =
      HeadsView::packed(queries.data(), spec.num_q_heads, 2, spec.head_dim, spec.dtype);
  pushed.queries.head_stride_bytes += 32;
  REQUIRE(put.layer(1, pushed).ok());
  const Taken& taken = fake.taken.at(0);
  CHECK(taken.message.head_count == 2);
  CHECK(taken.message.token_count == kNew);
  CHECK(taken.keys == expected(keys, first_row, kNew));
  CHECK(taken.values == expected(values, first_row, kNew));
  REQUIRE(taken.queries.size() == pushed.queries.size_bytes());
  for (std::uint32_t h = 0; h < spec.num_q_heads; ++h) {
    CHECK(std::memcmp(taken.queries.data() + h * pushed.queries.head_bytes(),
                      pushed.queries.head(h), pushed.queries.head_bytes()) == 0);
  }
}

TEST_CASE_METHOD(PagesFixture, "of the whole path's pages the new tokens are pushed", "[client]") {
  Put put = begin();
  REQUIRE(put.layer(0, push(5, kEnd)).ok());
  const Taken& taken = fake.taken.at(0);
  CHECK(taken.message.token_count == kNew);
  const std::vector<std::byte> rows = expected(keys, 5 + kBegin, kNew);
  const std::size_t head_bytes = rows.size() / 2;
  for (std::uint32_t h = 0; h < 2; ++h) {
    CHECK(std::memcmp(taken.keys.data() + h * taken.message.keys_head_stride,
                      rows.data() + h * head_bytes, head_bytes) == 0);
  }
}

TEST_CASE_METHOD(PagesFixture, "pages may be reused as soon as the push has returned", "[client]") {
  const auto wanted = expected(keys, 1, kNew);
  Put put = begin();
  for (std::uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    REQUIRE(put.start_layer(layer, push(1, kNew)).ok());
  }
  overwrite();
  REQUIRE(put.commit().ok());
  REQUIRE(fake.taken.size() == spec.num_layers);
  for (const Taken& taken : fake.taken) CHECK(taken.keys == wanted);
}

TEST_CASE_METHOD(PagesFixture, "a push out of pages does not wait for the service", "[client]") {
  fake.silent = true;
  Put put = begin();
  for (std::uint32_t token = 0; token < Put::kLayersAheadMax; ++token) {
    LayerPush piece = push(token, 1);
    piece.token_begin = token;
    REQUIRE(put.start_layer(0, piece).ok());
  }
  CHECK(put.abort().ok());
}

TEST_CASE_METHOD(PagesFixture, "of a stored segment pages are checked and not moved", "[client]") {
  fake.already_stored = true;
  Put put = begin();
  CHECK(put.layer(0, push(0, kNew)).ok());
  CHECK(put.layer(1, push(0, kNew + 1)).code() == StatusCode::kInvalidArgument);
  CHECK(fake.taken.empty());
}

TEST_CASE_METHOD(PagesFixture, "a wrong push out of pages is refused here, by name", "[client]") {
  const auto refused = [&](const std::function<void(LayerPush&)>& change) {
    LayerPush wrong = push(0, kNew);
    change(wrong);
    Put put = begin();
    const Status status = put.layer(1, wrong);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(put.commit().status().code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  using Catch::Matchers::StartsWith;
  CHECK_THAT(refused([&](auto& p) { p.keys = HeadsView::packed(keys.memory.data(), 2, 8, 8, {}); }),
             StartsWith("layer 1: pages: give keys and values in pages or as views"));
  CHECK_THAT(refused([](auto& p) { p.pages->keys.head_dim = 7; }),
             StartsWith("layer 1: pages.keys: head_dim 7"));
  CHECK_THAT(refused([](auto& p) { p.pages->num_heads = 3; }),
             StartsWith("layer 1: pages: 8 tokens of 3 heads"));
  CHECK_THAT(refused([](auto& p) { p.pages->num_heads = 0; }),
             StartsWith("layer 1: pages: 8 tokens of 0 heads"));
  CHECK_THAT(refused([](auto& p) { p.pages->num_tokens = kEnd + 1; }),
             StartsWith("layer 1: pages: 13 tokens of 2 heads"));
  CHECK_THAT(refused([](auto& p) { p.pages->table = p.pages->table.first(11); }),
             StartsWith("layer 1: pages: the table has 11 entries, must be [2, pages]"));
  CHECK_THAT(refused([](auto& p) { p.pages->keys.num_pages = 1; }),
             StartsWith("layer 1: pages: table["));
  CHECK_THAT(refused([](auto& p) { p.pages->first_row = 11; }),
             StartsWith("layer 1: pages: rows [11, 19) of each head, its 6 pages hold 18"));
  CHECK_THAT(refused([](auto& p) { p.pages->first_row = UINT32_MAX; }),
             StartsWith("layer 1: pages: rows [4294967295, 4294967303)"));
  CHECK_THAT(refused([](auto& p) { p.pages->num_tokens = kNew + 1; }),
             StartsWith("layer 1: keys are of 9 tokens from token 0"));
  CHECK_THAT(refused([](auto& p) { p.head_begin = 1; }),
             StartsWith("layer 1: keys are [2, 8, 8] from head 1"));
  CHECK_THAT(refused([](auto& p) { p.pages->values.space = MemorySpace::kDevice; }),
             StartsWith("layer 1: pages: keys lie in host memory, values on device 0, must be"));
  CHECK(fake.taken.empty());
}

TEST_CASE_METHOD(PagesFixture, "a push out of a device that is not there says what to do",
                 "[client]") {
  LayerPush pushed = push(0, kNew);
  for (PagedRows* rows : {&pushed.pages->keys, &pushed.pages->values}) {
    rows->space = MemorySpace::kDevice;
    rows->device = 999;
  }
  Put put = begin();
  const Status status = put.layer(1, pushed);
  CHECK(status.code() == StatusCode::kUnsupported);
  using Catch::Matchers::EndsWith;
  using Catch::Matchers::StartsWith;
  CHECK_THAT(status.message(), StartsWith("layer 1: pages: memory on device 999 is not"));
  CHECK_THAT(status.message(), EndsWith("; use pages in host memory"));
}

TEST_CASE("memory that rows were gathered into is used again, and little of it is kept",
          "[client]") {
  AsioLoop loop;
  const auto transport = make_loopback_client(loop, make_loopback_net());
  const auto pool =
      std::make_shared<StagingPool>(std::make_shared<HostMemory>(nullptr, *transport));
  const std::byte* first = nullptr;
  {
    const auto buffer = pool->allocate(1000).value();
    first = buffer->bytes().data();
    CHECK(pool->allocate(1000).value()->bytes().data() != first);
  }
  CHECK(pool->allocate(2000).value()->bytes().data() == first);
  std::vector<std::unique_ptr<StagingPool::Buffer>> used;
  for (std::size_t i = 0; i < 2 * limits::kStagingBuffersKeptMax; ++i) {
    used.push_back(pool->allocate(100).value());
  }
  std::set<const std::byte*> places;
  for (const auto& buffer : used) places.insert(buffer->bytes().data());
  used.clear();
  for (std::size_t i = 0; i < limits::kStagingBuffersKeptMax; ++i) {
    used.push_back(pool->allocate(100).value());
    CHECK(places.erase(used.back()->bytes().data()) == 1);
  }
}

}  // namespace
