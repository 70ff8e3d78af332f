// The stages on the CPU, one by one over host memory: what the CPU's compressor runs, and what a
// device falls back on and is held against.
#pragma once

#include <memory>
#include <string>

#include "kernels/common/thread_pool.h"
#include "kernels/encode/encode.h"
#include "precis/kernels.h"

namespace precis::kernels {

// Each stage as LayerCompressor says, with what it takes from those before it as arguments.
// Thread-safe: calls share nothing but the pool.
class CpuStages {
 public:
  // threads 0: every core. By default the best instruction set that the machine runs.
  explicit CpuStages(unsigned threads = 0);
  CpuStages(unsigned threads, Isa isa);

  const std::string& name() const { return name_; }
  const CpuContext& context() const { return context_; }

  Status check(const Recipe& recipe, const LayerInput& input) const;
  // Leaves the values of keys and values to encode().
  Status check_but_rows(const Recipe& recipe, const LayerInput& input) const;
  Status score(const Recipe& recipe, const LayerInput& input, LayerScores& scores) const;
  Status select(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                std::uint64_t slots, RetentionOrders& orders) const;
  // As many slots as select was asked for, or fewer.
  Status allocate(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                  const RetentionOrders& orders, std::uint64_t slots, LayerTurns& turns) const;
  Status encode(const LayerInput& input, const LayerScores& scores, const RetentionOrders& orders,
                std::span<const std::uint32_t> counts,
                const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                MutableBytes out, Rows rows = Rows::kChecked) const;
  Status seal(std::span<const MutableBytes> layers) const;

 private:
  mutable ThreadPool pool_;
  CpuContext context_;
  std::string name_;
};

// A compressor made of them; `stages` must outlive it.
std::unique_ptr<LayerCompressor> make_cpu_compressor(const CpuStages& stages);

}  // namespace precis::kernels
