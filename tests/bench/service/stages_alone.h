// The time of compression without a service.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "precis/joiner.h"
#include "precis/stages.h"
#include "tests/bench/service/payload.h"
#include "tests/bench/transport_ceilings.h"

namespace precis::bench {

// Runs the stages of every layer of a payload on every core, as the service does (put_path.cc),
// from the payload into allocated memory.
class StagesAlone {
 public:
  // `options`: only recipe and keep are used. The recipe's layers must not depend on each other.
  static Result<std::unique_ptr<StagesAlone>> make(const ModelSpec& model, const Payload& payload,
                                                   const PutOptions& options);
  // Use make().
  StagesAlone(const ModelSpec& model, const Payload& payload) : model_(model), payload_(payload) {}
  // GB/s of the payload.
  Result<double> rate();

 private:
  Status run(std::uint32_t layer, kernels::LayerCompressor& compressor, kernels::Joiner& joiner);

  const ModelSpec model_;
  const Payload& payload_;
  Recipe recipe_;
  std::uint64_t entries_ = 0;
  std::mutex joining_;
  std::unique_ptr<kernels::Backend> backend_;
  std::vector<std::unique_ptr<kernels::LayerCompressor>> compressors_;
  std::vector<std::unique_ptr<ColdPool>> out_;  // [num_layers]
};

}  // namespace precis::bench
