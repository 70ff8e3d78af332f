// The CPU backend. Its compressors keep the results of one stage for the next, in host memory.
#include <algorithm>

#include "kernels/cpu_stages.h"

namespace precis::kernels {
namespace {

// Whether any stage between check and encode reads the rows. If none does, encode checks their
// values, so that the rows are read from memory only once.
bool reads_rows(const Recipe& recipe) {
  if (recipe.selector == Selector::kTwoStage) return true;
  switch (recipe.scorer) {
    case Scorer::kStreamingLlm:
    case Scorer::kRandom:
    case Scorer::kExternal: return false;
    default: return true;
  }
}

class CpuCompressor final : public LayerCompressor {
 public:
  explicit CpuCompressor(const CpuStages& stages) : stages_(stages) {}

  Status check(const Recipe& recipe, const LayerInput& input) override {
    recipe_ = &recipe;
    input_ = input;
    rows_ = reads_rows(recipe) ? Rows::kChecked : Rows::kUnchecked;
    return rows_ == Rows::kChecked ? stages_.check(recipe, input_)
                                   : stages_.check_but_rows(recipe, input_);
  }
  Status score() override { return stages_.score(*recipe_, input_, scores_); }
  Status select(std::uint64_t slots) override {
    slots_ = slots;
    return stages_.select(*recipe_, input_, scores_, slots, orders_);
  }
  Status allocate(LayerTurns& turns) override {
    return stages_.allocate(*recipe_, input_, scores_, orders_, slots_, turns);
  }
  Result<const LayerScores*> scores() override { return &scores_; }
  Status encode(std::span<const std::uint32_t> counts,
                const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                MutableBytes out) override {
    return stages_.encode(input_, scores_, orders_, counts, seats, segment, out, recipe_->encoding,
                          rows_);
  }

 private:
  const CpuStages& stages_;
  const Recipe* recipe_ = nullptr;
  LayerInput input_;
  LayerScores scores_;
  RetentionOrders orders_;
  std::uint64_t slots_ = 0;
  Rows rows_ = Rows::kChecked;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(unsigned threads) : stages_(threads) {}

  std::string_view name() const override { return stages_.name(); }
  // One compressor spreads a layer over every core; meanwhile a second runs the serial parts of the
  // next layer.
  unsigned compressors() const override {
    return std::min(2u, stages_.context().pool.num_threads());
  }
  Result<std::unique_ptr<LayerCompressor>> compressor() override {
    return make_cpu_compressor(stages_);
  }
  Status seal(std::span<const MutableBytes> layers) override { return stages_.seal(layers); }
  Status expect_memory(MutableBytes) override { return {}; }
  bool expects_memory() const override { return false; }

 private:
  CpuStages stages_;
};

}  // namespace

std::unique_ptr<LayerCompressor> make_cpu_compressor(const CpuStages& stages) {
  return std::make_unique<CpuCompressor>(stages);
}

std::unique_ptr<Backend> make_cpu_backend(unsigned threads) {
  return std::make_unique<CpuBackend>(threads);
}

}  // namespace precis::kernels
