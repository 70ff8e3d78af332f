// The CUDA compressor: takes one layer through the stages on a device. Includes no CUDA header.
#pragma once

#include <atomic>
#include <functional>

#include "kernels/common/device.h"
#include "kernels/cpu_stages.h"
#include "kernels/sent_input_cuda.h"

namespace precis::kernels {

// Decides when the CPU compresses a layer that failed on the device, and reports why
// (make_cuda_backend()). Most CUDA errors are sticky: after one of them, no CUDA call works in this
// process. So an error that neither the layer's size nor its values explain marks the device as
// lost, and it is not used again.
class Retreat {
 public:
  explicit Retreat(std::function<void(const Status&)> told) : told_(std::move(told)) {}
  bool device_lost() const { return lost_.load(std::memory_order_relaxed); }
  // Whether the CPU compresses a layer that failed on the device with `why`.
  bool takes(const Status& why) {
    if (why.code() == StatusCode::kOutOfSpace) {
      if (told_ && !short_.exchange(true)) told_(why);
      return true;
    }
    if (why.code() == StatusCode::kInvalidArgument || !told_) return false;
    if (!lost_.exchange(true)) told_(why);
    return true;
  }

 private:
  const std::function<void(const Status&)> told_;
  std::atomic<bool> short_{false}, lost_{false};
};

// Copies a layer to the device and enqueues stage after stage on a stream of its own. The host
// waits for the device in allocate(), for the joiner's input, and in encode(), for the records.
// Several compressors side by side overlap one layer's copies with another's stages. The CPU runs
// the scorers that have no CUDA implementation (scores_on_device()), and a whole layer if the
// device has no room for it, or fails, before the layer's turns are known. After that a failure
// fails the put, because the joiner has used the turns.
class CudaCompressor final : public LayerCompressor {
 public:
  // `cpu` and `retreat` must outlive the compressor.
  static Result<std::unique_ptr<LayerCompressor>> create(int ordinal, const CpuStages& cpu,
                                                         Retreat& retreat);

  Status check(const Recipe& recipe, const LayerInput& input) override;
  Status score() override;
  Status select(std::uint64_t slots) override;
  Status allocate(LayerTurns& turns) override;
  Result<const LayerScores*> scores() override;
  Status encode(std::span<const std::uint32_t> counts,
                const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                MutableBytes out) override;

 private:
  // A layer's buffers on the device: allocated from the device's pool as stages need them, and
  // released at the end.
  struct Buffers {
    SentInput input;
    DeviceBuffer scores, second, limits, order;
    DeviceBuffer verdict;  // see Verdict
  };
  // Results that the host reads besides the turns and the records.
  struct Verdict {
    std::uint32_t not_finite;  // in keys or values
    std::uint32_t too_large;   // EncodeDevice::too_large
    float weight;              // LayerScores::weight
  };

  CudaCompressor(int ordinal, const CpuStages& cpu, Retreat& retreat, Stream stream)
      : ordinal_(ordinal),
        cpu_(cpu),
        retreat_(retreat),
        on_cpu_(make_cpu_compressor(cpu)),
        stream_(std::move(stream)) {}

  // Runs `stage`. If it fails, waits until the stream is idle, so that host memory may be freed,
  // and releases the device memory.
  template <typename Fn>
  auto on_device(const Fn& stage) -> decltype(stage());
  // If the device has no room for the layer, or is lost, checks the layer again with on_cpu_ and
  // then runs `stages` with it.
  template <typename Fn>
  Status or_on_cpu(Status of_device, const Fn& stages);

  Result<DeviceBuffer> allocated(std::size_t bytes);
  Status refuse_not_finite();
  Status read_verdict(Verdict& verdict);
  Status score_on_cpu();
  Status compete(LayerTurns& turns, Verdict& verdict);
  Result<DeviceBuffer> best_by_score(std::uint32_t& stride);

  const int ordinal_;
  const CpuStages& cpu_;
  Retreat& retreat_;
  const std::unique_ptr<LayerCompressor> on_cpu_;
  bool retreated_ = false;  // on_cpu_ compresses the layer
  Stream stream_;
  PinnedBuffer staging_;
  const Recipe* recipe_ = nullptr;
  LayerInput input_;
  Buffers buffers_;
  LayerScores scores_;  // on the host; filled by score_on_cpu() or scores()
  std::uint64_t slots_ = 0;
};

}  // namespace precis::kernels
