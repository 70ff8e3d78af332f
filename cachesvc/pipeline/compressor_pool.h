// The backend's idle compressors: each keeps its memory for the next layer.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "precis/kernels.h"

namespace precis {

// Thread-safe. Must outlive the compressors that it lends.
class CompressorPool {
 public:
  explicit CompressorPool(kernels::Backend& backend) : backend_(backend) {}

  struct GiveBack {
    CompressorPool* pool;
    void operator()(kernels::LayerCompressor* compressor) const {
      const std::lock_guard lock(pool->mutex_);
      pool->idle_.emplace_back(compressor);
    }
  };
  using Lent = std::unique_ptr<kernels::LayerCompressor, GiveBack>;

  // Returns an idle compressor, or makes one if none is idle.
  Result<Lent> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Lent lent(idle_.back().release(), GiveBack{this});
        idle_.pop_back();
        return lent;
      }
    }
    PRECIS_ASSIGN(auto made, backend_.compressor());
    return Lent(made.release(), GiveBack{this});
  }

 private:
  kernels::Backend& backend_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<kernels::LayerCompressor>> idle_;  // guarded by mutex_
};

}  // namespace precis
