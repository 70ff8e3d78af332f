// The CUDA backend: compressors on one device, and the CPU for work without a CUDA implementation.
#include <list>
#include <mutex>

#include "kernels/common/device.h"
#include "kernels/common/tuning.h"
#include "kernels/compressor_cuda.h"

namespace precis::kernels {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(int ordinal, std::string name, unsigned threads,
              std::function<void(const Status&)> on_retreat)
      : ordinal_(ordinal), name_(std::move(name)), cpu_(threads), retreat_(std::move(on_retreat)) {}

  std::string_view name() const override { return name_; }
  unsigned compressors() const override { return kCompressors; }
  Result<std::unique_ptr<LayerCompressor>> compressor() override {
    return CudaCompressor::create(ordinal_, cpu_, retreat_);
  }
  Status seal(std::span<const MutableBytes> layers) override { return cpu_.seal(layers); }

  bool expects_memory() const override { return true; }
  Status expect_memory(MutableBytes memory) override {
    PRECIS_TRY(use_device(ordinal_));
    PRECIS_ASSIGN(PinnedMemory pinned, PinnedMemory::pin(memory));
    const std::lock_guard lock(mutex_);
    pinned_.push_back(std::move(pinned));
    return {};
  }

 private:
  const int ordinal_;
  const std::string name_;
  const CpuStages cpu_;
  Retreat retreat_;
  std::mutex mutex_;
  std::list<PinnedMemory> pinned_;  // guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(int ordinal, unsigned threads,
                                                   std::function<void(const Status&)> on_retreat) {
  PRECIS_TRY(use_device(ordinal));
  PRECIS_ASSIGN(const std::string device, device_name(ordinal));
  PRECIS_TRY(try_device());
  PRECIS_TRY(keep_device_memory(ordinal, kDeviceMemoryKept));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(
      ordinal, "cuda:" + std::to_string(ordinal) + " (" + device + ")", threads,
      std::move(on_retreat)));
}

}  // namespace precis::kernels
