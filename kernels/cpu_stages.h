// The CPU stages as separate functions over host memory. The CPU compressor runs them, a device
// falls back on them, and tests compare devices with them.
#pragma once

#include <memory>
#include <string>

#include "kernels/common/thread_pool.h"
#include "kernels/encode/encode.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Each stage as LayerCompressor says, but it takes the results of earlier stages as arguments.
// Thread-safe: calls share nothing but the pool.
class CpuStages {
 public:
  // threads 0: every core. The instruction set defaults to the best that the machine runs.
  explicit CpuStages(unsigned threads = 0);
  CpuStages(unsigned threads, Isa isa);

  const std::string& name() const { return name_; }
  const CpuContext& context() const { return context_; }

  Status check(const Recipe& recipe, const LayerInput& input) const;
  // Checks everything except the values of keys and values, which encode() checks.
  Status check_but_rows(const Recipe& recipe, const LayerInput& input) const;
  Status score(const Recipe& recipe, const LayerInput& input, LayerScores& scores) const;
  Status select(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                std::uint64_t slots, RetentionOrders& orders) const;
  // `slots`: at most as many as select() was asked for.
  Status allocate(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                  const RetentionOrders& orders, std::uint64_t slots, LayerTurns& turns) const;
  Status encode(const LayerInput& input, const LayerScores& scores, const RetentionOrders& orders,
                std::span<const std::uint32_t> counts,
                const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                MutableBytes out, Encoding encoding = Encoding::kRaw,
                Rows rows = Rows::kChecked) const;
  Status seal(std::span<const MutableBytes> layers) const;

 private:
  mutable ThreadPool pool_;
  CpuContext context_;
  std::string name_;
};

// A compressor that runs these stages; `stages` must outlive it.
std::unique_ptr<LayerCompressor> make_cpu_compressor(const CpuStages& stages);

}  // namespace precis::kernels
