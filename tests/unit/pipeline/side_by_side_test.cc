// Layers of a put that are compressed at the same time.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "tests/unit/pipeline/put_fixture.h"

namespace {

using namespace precis;
using namespace precis::testing;

// Holds the first layer that is encoded until let_go is set. At that point the layer's memory is
// allocated and nothing is written to it.
class HeldEncode final : public kernels::Backend {
 public:
  std::promise<void> reached, let_go;

  std::string_view name() const override { return inner_->name(); }
  unsigned compressors() const override { return inner_->compressors(); }
  Result<std::unique_ptr<kernels::LayerCompressor>> compressor() override {
    PRECIS_ASSIGN(auto compressor, inner_->compressor());
    return std::unique_ptr<kernels::LayerCompressor>(
        std::make_unique<Compressor>(*this, std::move(compressor)));
  }
  Status seal(std::span<const MutableBytes> layers) override { return inner_->seal(layers); }
  Status expect_memory(MutableBytes) override { return {}; }
  bool expects_memory() const override { return false; }

 private:
  class Compressor final : public kernels::LayerCompressor {
   public:
    Compressor(HeldEncode& owner, std::unique_ptr<kernels::LayerCompressor> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    Status check(const Recipe& recipe, const kernels::LayerInput& input) override {
      return inner_->check(recipe, input);
    }
    Status score() override { return inner_->score(); }
    Status select(std::uint64_t slots) override { return inner_->select(slots); }
    Status allocate(kernels::LayerTurns& turns) override { return inner_->allocate(turns); }
    Result<const kernels::LayerScores*> scores() override { return inner_->scores(); }
    Status encode(std::span<const std::uint32_t> counts,
                  const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                  MutableBytes out) override {
      if (!owner_.was_held_.exchange(true)) {
        owner_.reached.set_value();
        owner_.let_go.get_future().wait();
      }
      return inner_->encode(counts, seats, segment, out);
    }

   private:
    HeldEncode& owner_;
    const std::unique_ptr<kernels::LayerCompressor> inner_;
  };

  const std::unique_ptr<kernels::Backend> inner_ = kernels::make_cpu_backend(2);
  std::atomic<bool> was_held_{false};
};

TEST_CASE("a layer that is encoded last is in its place", "[unit][pipeline]") {
  constexpr int kTurns = 16;
  auto backend = std::make_unique<HeldEncode>();
  HeldEncode& held = *backend;
  PutFixture f(std::chrono::hours(1), std::move(backend));
  const msg::BeginPut quarter = f.request(kUniform, Budget::ratio_ppm(250'000));
  const PutAlone alone(quarter);
  const PutPtr put = f.begin(quarter, f.one);
  for (const PushedLayer& layer : f.layers) f.push(put, layer.heads(kUniform, 0, kHeads), f.one);
  const auto reached = held.reached.get_future();
  while (reached.wait_for(std::chrono::seconds(0)) != std::future_status::ready) f.turn_loop();
  for (int i = 0; i < kTurns; ++i) f.turn();
  const auto others_are = [&](bool compressed) {
    return std::count_if(put->layers.begin(), put->layers.end(),
                         [&](const auto& layer) { return layer.is_compressed() == compressed; });
  };
  CHECK(others_are(true) == kLayers - 1);

  held.let_go.set_value();
  f.check_taken_in(kLayers);
  const auto& done = f.commit(put, f.one);
  f.settle();
  REQUIRE((done && done->ok()));
  CHECK((*done)->plan == alone.stored.plan);
  const bool same = f.records((*done)->id) == alone.records;
  CHECK(same);
}

}  // namespace
