// The CPU backend: one line per stage.
#include <string>

#include "kernels/allocate/allocate.h"
#include "kernels/check/check.h"
#include "kernels/common/isa.h"
#include "kernels/common/thread_pool.h"
#include "kernels/encode/encode.h"
#include "kernels/score/score.h"
#include "kernels/select/select.h"
#include "precis/kernels.h"

namespace precis::kernels {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(unsigned threads)
      : pool_(threads),
        context_{pool_, detect_isa()},
        name_("cpu (" + std::string(isa_name(context_.isa)) + ")") {}

  std::string_view name() const override { return name_; }
  Status check(const Recipe& recipe, const LayerInput& input) override {
    return check_cpu(context_, recipe, input);
  }
  Status score(const Recipe& recipe, const LayerInput& input, LayerScores& scores) override {
    return score_cpu(context_, recipe, input, scores);
  }
  Status select(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                std::uint64_t slots, RetentionOrders& orders) override {
    return select_cpu(context_, recipe, input, scores, slots, orders);
  }
  Status allocate(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                  const RetentionOrders& orders, std::uint64_t slots, LayerTurns& turns) override {
    return allocate_cpu(context_, recipe, input, scores, orders, slots, turns);
  }
  Status encode(const LayerInput& input, const LayerScores& scores, const RetentionOrders& orders,
                std::span<const std::uint32_t> counts,
                const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                MutableBytes out) override {
    return encode_cpu(context_, input, scores, orders, counts, seats, segment, out);
  }

  Status seal(std::span<const MutableBytes> layers) override { return seal_cpu(context_, layers); }

 private:
  ThreadPool pool_;
  CpuContext context_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(unsigned threads) {
  return std::make_unique<CpuBackend>(threads);
}

}  // namespace precis::kernels
