// One layer's way through the stages on a CUDA device. No CUDA header shows here.
#pragma once

#include <atomic>
#include <functional>

#include "kernels/common/device.h"
#include "kernels/cpu_stages.h"
#include "kernels/score/score_cuda.h"

namespace precis::kernels {

// When layers go through the CPU instead, and that it is told (make_cuda_backend()). Most of CUDA's
// errors stay: after one nothing works in this process. So one that no layer's size explains is
// enough, and the device is asked no more.
class Retreat {
 public:
  explicit Retreat(std::function<void(const Status&)> told) : told_(std::move(told)) {}
  bool device_lost() const { return lost_.load(std::memory_order_relaxed); }
  // Whether a layer that met with `why` on the device is the CPU's.
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

// Copies a layer in and enqueues stage after stage on a stream of its own; the host waits for the
// device in allocate(), for what the joiner needs, and in encode(), for the records. Several side
// by side let one layer's copies run while another is compressed. What has no twin on the device
// (scores_on_device()) the CPU does, and all of a layer that the device has no room for, or fails
// at, before its turns are known. Afterwards the put fails, for the joiner has counted on them.
class CudaCompressor final : public LayerCompressor {
 public:
  // `cpu` and `retreat` must outlive it.
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
  // A layer on the device. Taken from the device's pool as stages need it, given back at the end.
  struct Memory {
    DeviceBuffer keys, values, queries, lse, external, query_mean, query_covariance, o_proj, gram,
        rope_frequencies;
    DeviceBuffer scores, second, limits, order;
    DeviceBuffer verdict;  // see Verdict
  };
  // What allocate() reads back besides turns.
  struct Verdict {
    std::uint32_t not_finite;  // in keys or values
    float weight;              // LayerScores::weight
  };

  CudaCompressor(int ordinal, const CpuStages& cpu, Retreat& retreat, Stream stream)
      : ordinal_(ordinal),
        cpu_(cpu),
        retreat_(retreat),
        on_cpu_(make_cpu_compressor(cpu)),
        stream_(std::move(stream)) {}

  // A stage that fails leaves nothing under way, so that host memory may go, and no device memory.
  template <typename Fn>
  auto on_device(const Fn& stage) -> decltype(stage());
  // Where the device's memory is short or the device lost, the layer goes through `stages` of
  // on_cpu_ instead, from its check on.
  template <typename Fn>
  Status or_on_cpu(Status of_device, const Fn& stages);

  Result<DeviceBuffer> allocated(std::size_t bytes);
  Status send(const HeadsView& rows, DeviceBuffer& to);
  template <typename T>
  Status send(std::span<const T> values, DeviceBuffer& to);
  Status send_input();
  Status refuse_not_finite();
  Status read_verdict(Verdict& verdict);
  Status score_on_cpu();
  Status compete(LayerTurns& turns, Verdict& verdict);
  Result<DeviceBuffer> best_by_score(std::uint32_t& stride);

  const int ordinal_;
  const CpuStages& cpu_;
  Retreat& retreat_;
  const std::unique_ptr<LayerCompressor> on_cpu_;
  bool retreated_ = false;  // the layer is on_cpu_'s
  Stream stream_;
  PinnedBuffer staging_;
  const Recipe* recipe_ = nullptr;
  LayerInput input_;
  LayerDevice layer_;
  Memory memory_;
  LayerScores scores_;  // on the host, where somebody asked
  std::uint64_t slots_ = 0;
};

}  // namespace precis::kernels
