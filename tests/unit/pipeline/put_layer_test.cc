// The states of one layer of a put.
#include "cachesvc/pipeline/put_layer.h"
#include "cachesvc/base/asio_loop.h"

#include <catch2/catch.hpp>

namespace precis {
namespace {

constexpr std::uint32_t kTokens = 5;

struct LayerFixture {
  ModelSpec model;
  Recipe recipe = parse_recipe("knorm").value();
  std::unique_ptr<Arena> arena = Arena::create(1 << 20).value();
  AsioLoop loop;
  PutLayer layer;

  LayerFixture() {
    model.num_layers = model.num_q_heads = model.num_kv_heads = 1;
    model.head_dim = 4;
  }
  void begin() { layer.begin(std::make_unique<StagedLayer>(model, recipe, 0, kTokens), loop); }
  void encode() {
    layer.records = arena->allocate(100).value();
    layer.counts = {3};
  }
};

}  // namespace

TEST_CASE("a layer passes through its states in order", "[unit][pipeline]") {
  LayerFixture f;
  CHECK(f.layer.state() == LayerState::kAwaited);
  CHECK(f.layer.takes_pieces());
  f.begin();
  CHECK(f.layer.state() == LayerState::kClaimed);
  CHECK(f.layer.takes_pieces());
  f.layer.stage();
  CHECK_FALSE(f.layer.takes_pieces());
  CHECK_FALSE(f.layer.is_compressed());
  f.encode();
  f.layer.compress();
  CHECK(f.layer.is_compressed());
  f.layer.write();
  CHECK(f.layer.state() == LayerState::kWritten);
  const auto records = f.layer.commit();
  CHECK(f.layer.state() == LayerState::kCommitted);
  REQUIRE(records != nullptr);
  CHECK(records->bytes().size() == 100);
  CHECK(f.layer.records == nullptr);
}

TEST_CASE("a layer has its rows until it is compressed, or its compression fails",
          "[unit][pipeline]") {
  LayerFixture f;
  f.begin();
  f.layer.stage();
  CHECK(f.layer.rows != nullptr);
  f.encode();
  const bool fails = GENERATE(false, true);
  fails ? f.layer.drop_rows() : f.layer.compress();
  CHECK(f.layer.rows == nullptr);
  CHECK(f.layer.state() == (fails ? LayerState::kStaged : LayerState::kCompressed));
}

}  // namespace precis
