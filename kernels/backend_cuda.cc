// The CUDA backend. One stage runs on the device, the window-attention score where rows are reduced
// before they are pooled; every other stage and scorer is the CPU backend's, so their results are
// equal by construction (D15).
#include <mutex>

#include "kernels/common/device.h"
#include "kernels/score/window_attention_cuda.h"
#include "precis/kernels.h"

namespace precis::kernels {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(int ordinal, std::string name, Stream stream)
      : ordinal_(ordinal),
        name_(std::move(name)),
        cpu_(make_cpu_backend()),
        stream_(std::move(stream)) {}

  std::string_view name() const override { return name_; }
  Status check(const Recipe& recipe, const LayerInput& input) override {
    return cpu_->check(recipe, input);
  }
  Status score(const Recipe& recipe, const LayerInput& input, LayerScores& scores) override {
    if (!on_device(recipe)) return cpu_->score(recipe, input, scores);
    scores.scores.resize(std::size_t{input.num_kv_heads()} * input.num_tokens());
    scores.second.clear();
    scores.weight = 0;
    return score_window_attention(recipe, input, scores.scores);
  }
  Status select(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                std::uint64_t slots, RetentionOrders& orders) override {
    return cpu_->select(recipe, input, scores, slots, orders);
  }
  Status allocate(const Recipe& recipe, const LayerInput& input, const LayerScores& scores,
                  const RetentionOrders& orders, std::uint64_t slots, LayerTurns& turns) override {
    return cpu_->allocate(recipe, input, scores, orders, slots, turns);
  }
  Status encode(const LayerInput& input, const LayerScores& scores, const RetentionOrders& orders,
                std::span<const std::uint32_t> counts,
                const std::vector<std::vector<std::uint32_t>>& seats, const SegmentId& segment,
                MutableBytes out) override {
    return cpu_->encode(input, scores, orders, counts, seats, segment, out);
  }

  Status seal(std::span<const MutableBytes> layers) override { return cpu_->seal(layers); }

 private:
  // Whole rows reduced by one sum, and nothing wanted of a layer but its scores.
  static bool on_device(const Recipe& recipe) {
    return recipe.scorer == Scorer::kWindowAttention &&
           recipe.row_reduce != RowReduce::kMeanVariance &&
           (recipe.pool_order == PoolOrder::kRowsGroupPool ||
            recipe.pool_order == PoolOrder::kRowsPoolGroup) &&
           recipe.selector != Selector::kTwoStage && recipe.layers != LayerAllocator::kEntropy &&
           recipe.layers != LayerAllocator::kPreference;
  }

  Status score_window_attention(const Recipe& recipe, const LayerInput& input,
                                std::span<float> scores) {
    const std::lock_guard lock(mutex_);
    PRECIS_TRY(use_device(ordinal_));  // CUDA keeps the current device per thread.
    PRECIS_ASSIGN(DeviceBuffer keys, DeviceBuffer::allocate(input.keys.size_bytes()));
    PRECIS_ASSIGN(DeviceBuffer queries, DeviceBuffer::allocate(input.queries.size_bytes()));
    PRECIS_ASSIGN(DeviceBuffer lse, DeviceBuffer::allocate(input.lse.size_bytes()));
    PRECIS_ASSIGN(DeviceBuffer out, DeviceBuffer::allocate(scores.size_bytes()));
    WindowAttentionDevice task{};
    task.op = AttentionOp::of(recipe, input.num_tokens(), input.queries.num_tokens, input.group());
    task.num_kv_heads = input.num_kv_heads();
    task.num_tokens = input.num_tokens();
    task.head_dim = input.keys.head_dim;
    task.pushed = input.queries.num_tokens;
    task.dtype = input.keys.dtype;
    task.keys = keys.data();
    task.queries = queries.data();
    task.lse = reinterpret_cast<const float*>(lse.data());
    task.scores = reinterpret_cast<float*>(out.data());
    PRECIS_ASSIGN(DeviceBuffer workspace,
                  DeviceBuffer::allocate(window_attention_workspace_bytes(task)));

    const Status status = [&]() -> Status {
      PRECIS_TRY(keys.copy_from(input.keys, stream_));
      PRECIS_TRY(queries.copy_from(input.queries, stream_));
      if (!input.lse.empty()) PRECIS_TRY(lse.copy_from(std::as_bytes(input.lse), stream_));
      PRECIS_TRY(launch_window_attention(task, workspace.data(), stream_));
      return out.copy_to(std::as_writable_bytes(scores), stream_);
    }();
    // Whatever was enqueued still uses the buffers.
    const Status waited = stream_.wait();
    return status.ok() ? waited : status;
  }

  const int ordinal_;
  const std::string name_;
  const std::unique_ptr<Backend> cpu_;
  std::mutex mutex_;  // one layer on the device at a time
  Stream stream_;     // guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(int ordinal) {
  PRECIS_TRY(use_device(ordinal));
  PRECIS_ASSIGN(std::string device, device_name(ordinal));
  PRECIS_ASSIGN(Stream stream, Stream::create());
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(
      ordinal, "cuda:" + std::to_string(ordinal) + " (" + device + ")", std::move(stream)));
}

}  // namespace precis::kernels
