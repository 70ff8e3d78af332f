#include "kernels/compressor_cuda.h"

#include <algorithm>
#include <cstring>

#include "kernels/allocate/allocate_cuda.h"
#include "kernels/allocate/layer_turns.h"
#include "kernels/check/check.h"
#include "kernels/check/check_cuda.h"
#include "kernels/encode/encode.h"
#include "kernels/encode/encode_cuda.h"
#include "kernels/select/best_tokens_cuda.h"
#include "kernels/select/ranked_limits_cuda.h"
#include "kernels/select/select.h"
#include "kernels/select/select_cuda.h"

namespace precis::kernels {
namespace {

std::uint64_t entries_of(const LayerInput& input) {
  return std::uint64_t{input.num_kv_heads()} * input.num_tokens();
}

// Whether the heads compete within the layer and the device implements that contest.
bool contest_on_device(const Recipe& recipe, std::uint32_t num_heads) {
  return recipe.layers != LayerAllocator::kGlobalFlat && !is_blend(recipe) &&
         num_heads <= kContestHeadsMax;
}

template <typename T>
MutableBytes bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

Result<std::unique_ptr<LayerCompressor>> CudaCompressor::create(int ordinal, const CpuStages& cpu,
                                                                Retreat& retreat) {
  const auto on_device = [&]() -> Result<std::unique_ptr<LayerCompressor>> {
    PRECIS_TRY(use_device(ordinal));
    PRECIS_ASSIGN(Stream stream, Stream::create());
    return std::unique_ptr<LayerCompressor>(
        new CudaCompressor(ordinal, cpu, retreat, std::move(stream)));
  };
  if (retreat.device_lost()) return make_cpu_compressor(cpu);
  auto made = on_device();
  if (!made.ok() && retreat.takes(made.status())) return make_cpu_compressor(cpu);
  return made;
}

template <typename Fn>
auto CudaCompressor::on_device(const Fn& stage) -> decltype(stage()) {
  const auto chosen = [&]() -> decltype(stage()) {
    PRECIS_TRY(use_device(ordinal_));  // CUDA keeps the current device per thread
    return stage();
  };
  auto result = chosen();
  if (result.ok()) return result;
  (void)stream_.wait();
  buffers_ = {};
  return result;
}

template <typename Fn>
Status CudaCompressor::or_on_cpu(Status of_device, const Fn& stages) {
  if (of_device.ok() || !retreat_.takes(of_device)) return of_device;
  retreated_ = true;
  PRECIS_TRY(on_cpu_->check(*recipe_, input_));
  return stages();
}

Result<DeviceBuffer> CudaCompressor::allocated(std::size_t bytes) {
  return DeviceBuffer::allocate(bytes, stream_);
}

// ---- check --------------------------------------------------------------------------------------

Status CudaCompressor::check(const Recipe& recipe, const LayerInput& input) {
  recipe_ = &recipe;
  input_ = input;
  retreated_ = false;
  buffers_ = {};
  if (retreat_.device_lost()) {
    retreated_ = true;
    return on_cpu_->check(recipe, input);
  }
  PRECIS_TRY(check_but_rows_cpu(cpu_.context(), recipe, input));
  Status looked_at = on_device([&]() -> Status {
    PRECIS_TRY(buffers_.input.send(recipe, input, stream_));
    const LayerDevice& layer = buffers_.input.layer();
    PRECIS_ASSIGN(buffers_.verdict, allocated(sizeof(Verdict)));
    PRECIS_TRY(buffers_.verdict.clear(stream_));
    auto* found = &buffers_.verdict.as<Verdict>()->not_finite;
    const std::uint64_t elements = entries_of(input) * input.keys.head_dim;
    PRECIS_TRY(launch_find_not_finite(layer.dtype, layer.keys, elements, found, stream_));
    return launch_find_not_finite(layer.dtype, layer.values, elements, found, stream_);
  });
  return or_on_cpu(std::move(looked_at), [] { return Status(); });
}

// The CPU's check names the value that is not finite.
Status CudaCompressor::refuse_not_finite() {
  PRECIS_TRY(cpu_.check(*recipe_, input_));
  return Status::internal("the device saw NaN or an infinity in layer " +
                          std::to_string(input_.layer) + ", the CPU does not");
}

Status CudaCompressor::read_verdict(Verdict& verdict) {
  PRECIS_ASSIGN(const MutableBytes arrived, staging_.take(sizeof(Verdict)));
  PRECIS_TRY(buffers_.verdict.copy_to(arrived, stream_));
  PRECIS_TRY(stream_.wait());
  std::memcpy(&verdict, arrived.data(), sizeof verdict);
  return verdict.not_finite == 0 ? Status() : refuse_not_finite();
}

// ---- score --------------------------------------------------------------------------------------

Status CudaCompressor::score() {
  if (retreated_) return on_cpu_->score();
  Status scored = on_device([&]() -> Status {
    PRECIS_ASSIGN(buffers_.scores, allocated(entries_of(input_) * sizeof(float)));
    if (needs_second(*recipe_)) {
      PRECIS_ASSIGN(buffers_.second, allocated(entries_of(input_) * sizeof(float)));
    }
    if (!scores_on_device(*recipe_)) return score_on_cpu();
    const LayerDevice& layer = buffers_.input.layer();
    PRECIS_ASSIGN(const DeviceBuffer workspace, allocated(score_workspace_bytes(*recipe_, layer)));
    ScoresDevice out;
    out.scores = buffers_.scores.as<float>();
    out.second = buffers_.second.as<float>();
    out.weight = &buffers_.verdict.as<Verdict>()->weight;
    return launch_score(*recipe_, layer, workspace.data(), out, stream_);
  });
  return or_on_cpu(std::move(scored), [this] { return on_cpu_->score(); });
}

Status CudaCompressor::score_on_cpu() {
  Verdict verdict;
  PRECIS_TRY(read_verdict(verdict));  // the CPU's scorers require finite rows
  PRECIS_TRY(cpu_.score(*recipe_, input_, scores_));
  PRECIS_TRY(buffers_.scores.copy_from(std::as_bytes(std::span(scores_.scores)), stream_));
  PRECIS_TRY(buffers_.second.copy_from(std::as_bytes(std::span(scores_.second)), stream_));
  verdict.weight = scores_.weight;
  PRECIS_TRY(buffers_.verdict.copy_from(bytes_of(verdict), stream_));
  return stream_.wait();  // before `verdict` goes out of scope
}

Result<const LayerScores*> CudaCompressor::scores() {
  if (retreated_) return on_cpu_->scores();
  return on_device([&]() -> Result<const LayerScores*> {
    scores_.scores.resize(buffers_.scores.size_bytes() / sizeof(float));
    scores_.second.resize(buffers_.second.size_bytes() / sizeof(float));
    PRECIS_TRY(buffers_.scores.copy_to(std::as_writable_bytes(std::span(scores_.scores)), stream_));
    PRECIS_TRY(buffers_.second.copy_to(std::as_writable_bytes(std::span(scores_.second)), stream_));
    Verdict verdict;
    PRECIS_TRY(read_verdict(verdict));
    scores_.weight = verdict.weight;
    return &scores_;
  });
}

// ---- select and allocate ------------------------------------------------------------------------

Status CudaCompressor::select(std::uint64_t slots) {
  slots_ = std::min(slots, entries_of(input_));
  if (retreated_) return on_cpu_->select(slots_);
  Status selected = on_device([&]() -> Status {
    SelectDevice task = SelectDevice::of(*recipe_, input_);
    RankedLimitsDevice limits =
        RankedLimitsDevice::of(*recipe_, task.shape, task.num_heads, slots_);
    PRECIS_ASSIGN(buffers_.limits, allocated(task.num_heads * sizeof(std::uint32_t)));
    PRECIS_ASSIGN(buffers_.order, allocated(entries_of(input_) * sizeof(std::uint32_t)));
    PRECIS_ASSIGN(
        const DeviceBuffer workspace,
        allocated(std::max(ranked_limits_workspace_bytes(limits), select_workspace_bytes(task))));
    task.scores = limits.scores = buffers_.scores.as<float>();
    task.second = buffers_.second.as<float>();
    task.limits = limits.limits = buffers_.limits.as<std::uint32_t>();
    task.order = buffers_.order.as<std::uint32_t>();
    PRECIS_TRY(launch_ranked_limits(limits, workspace.data(), stream_));
    return launch_select(task, workspace.data(), stream_);
  });
  return or_on_cpu(std::move(selected), [this]() -> Status {
    PRECIS_TRY(on_cpu_->score());
    return on_cpu_->select(slots_);
  });
}

Status CudaCompressor::allocate(LayerTurns& turns) {
  if (retreated_) return on_cpu_->allocate(turns);
  Status made = on_device([&]() -> Status {
    turns = {};
    turns.num_tokens = input_.num_tokens();
    turns.num_kv_heads = input_.num_kv_heads();
    turns.protected_count =
        SegmentShape::of(*recipe_, input_.layer, input_.begin, input_.num_tokens())
            .protected_count();
    Verdict verdict{};
    if (ranks_wanted(*recipe_, turns, slots_) > 0) {
      PRECIS_TRY(compete(turns, verdict));
    } else {
      PRECIS_TRY(read_verdict(verdict));
      make_turns(*recipe_, slots_, {}, turns);
    }
    turns.weight = verdict.weight;
    return {};
  });
  return or_on_cpu(std::move(made), [&]() -> Status {
    PRECIS_TRY(on_cpu_->score());
    PRECIS_TRY(on_cpu_->select(slots_));
    return on_cpu_->allocate(turns);
  });
}

// Each head's ranked tokens by score; the heads' lists are `stride` apart. Ranks the tokens again
// because the selector's order is not by score.
Result<DeviceBuffer> CudaCompressor::best_by_score(std::uint32_t& stride) {
  const SegmentShape shape =
      SegmentShape::of(*recipe_, input_.layer, input_.begin, input_.num_tokens());
  BestTokensDevice task{};
  task.scores = buffers_.scores.as<float>();
  task.num_heads = input_.num_kv_heads();
  task.stride = input_.num_tokens();
  task.first = shape.sinks;
  task.last = input_.num_tokens() - shape.recent;
  task.order_stride = stride = task.last - task.first;
  PRECIS_ASSIGN(DeviceBuffer best,
                allocated(std::size_t{task.num_heads} * stride * sizeof(std::uint32_t)));
  PRECIS_ASSIGN(const DeviceBuffer workspace, allocated(best_tokens_workspace_bytes(task)));
  task.limits = buffers_.limits.as<std::uint32_t>();
  task.order = best.as<std::uint32_t>();
  PRECIS_TRY(launch_best_tokens(task, workspace.data(), stream_));
  return best;
}

// The turns of competing heads: computed on the device, or here from ranks that the device
// computes.
Status CudaCompressor::compete(LayerTurns& turns, Verdict& verdict) {
  const std::uint32_t num_heads = turns.num_kv_heads;
  std::uint32_t stride = turns.num_tokens;
  const std::uint32_t* best = buffers_.order.as<std::uint32_t>() + turns.protected_count;
  DeviceBuffer by_score;
  if (recipe_->selector != Selector::kTopk) {
    PRECIS_ASSIGN(by_score, best_by_score(stride));
    best = by_score.as<std::uint32_t>();
  }
  if (contest_on_device(*recipe_, num_heads)) {
    PRECIS_ASSIGN(const DeviceBuffer heads, allocated(slots_ * sizeof(std::uint16_t)));
    AllocateDevice task;
    task.guarantee = Guarantee::of(*recipe_);
    task.num_heads = num_heads;
    task.num_tokens = turns.num_tokens;
    task.protected_count = turns.protected_count;
    task.slots = slots_;
    task.scores = buffers_.scores.as<float>();
    task.best = best;
    task.best_stride = stride;
    task.sizes = buffers_.limits.as<std::uint32_t>();
    task.heads = heads.as<std::uint16_t>();
    PRECIS_TRY(launch_allocate(task, stream_));
    turns.heads.resize(slots_);
    PRECIS_TRY(heads.copy_to(std::as_writable_bytes(std::span(turns.heads)), stream_));
    return read_verdict(verdict);  // and waits for the heads
  }
  PRECIS_TRY(read_verdict(verdict));
  std::vector<std::uint32_t> sizes(num_heads);
  PRECIS_TRY(buffers_.limits.copy_to(std::as_writable_bytes(std::span(sizes)), stream_));
  PRECIS_TRY(stream_.wait());
  RanksDevice task;
  task.num_heads = num_heads;
  task.num_tokens = turns.num_tokens;
  task.scores = buffers_.scores.as<float>();
  task.best = best;
  task.best_stride = stride;
  task.sizes = buffers_.limits.as<std::uint32_t>();
  task.count = *std::ranges::max_element(sizes);
  PRECIS_ASSIGN(const DeviceBuffer there,
                allocated(std::size_t{num_heads} * task.count * sizeof(std::uint32_t)));
  task.ranks = there.as<std::uint32_t>();
  PRECIS_TRY(launch_ranks(task, stream_));
  std::vector<std::uint32_t> here(std::size_t{num_heads} * task.count);
  PRECIS_TRY(there.copy_to(std::as_writable_bytes(std::span(here)), stream_));
  PRECIS_TRY(stream_.wait());
  Ranks ranks;
  for (std::uint32_t h = 0; h < num_heads; ++h) {
    const auto first = here.begin() + std::ptrdiff_t{h} * task.count;
    ranks.emplace_back(first, first + sizes[h]);
  }
  make_turns(*recipe_, slots_, std::move(ranks), turns);
  return {};
}

// ---- encode -------------------------------------------------------------------------------------

Status CudaCompressor::encode(std::span<const std::uint32_t> counts,
                              const std::vector<std::vector<std::uint32_t>>& seats,
                              const SegmentId& segment, MutableBytes out) {
  if (retreated_) return on_cpu_->encode(counts, seats, segment, out);
  PRECIS_CHECK(counts.size() == input_.num_kv_heads());
  const std::uint32_t count_max = *std::ranges::max_element(counts);
  PRECIS_CHECK(count_max <= input_.num_tokens());
  const auto encoded = on_device([&]() -> Status {
    PRECIS_TRY(check_room(input_, recipe_->encoding, counts, out));
    const LayerDevice& layer = buffers_.input.layer();
    // Heads and seats share one staged copy.
    const std::size_t head_bytes = counts.size() * sizeof(EncodeHead);
    const std::size_t seat_bytes =
        seats.empty() ? 0 : counts.size() * count_max * sizeof(std::uint32_t);
    PRECIS_ASSIGN(const MutableBytes staged, staging_.take(head_bytes + seat_bytes));
    const EntryForm form{layer.head_dim, input_.keys.dtype, recipe_->encoding};
    auto* heads = reinterpret_cast<EncodeHead*>(staged.data());
    auto* placed = reinterpret_cast<std::uint32_t*>(staged.data() + head_bytes);
    std::uint64_t offset = 0;
    for (std::size_t h = 0; h < counts.size(); ++h) {
      heads[h] = {offset, counts[h]};
      offset += RecordLayout::of(counts[h], form).size;
      if (!seats.empty()) std::ranges::copy(seats[h], placed + h * count_max);
    }
    PRECIS_ASSIGN(DeviceBuffer plan, allocated(staged.size()));
    PRECIS_TRY(plan.copy_from(Bytes(staged), stream_));
    PRECIS_ASSIGN(const DeviceBuffer records, allocated(out.size()));
    EncodeDevice task{};
    task.layer = layer.layer;
    task.num_kv_heads = layer.num_kv_heads;
    task.num_tokens = task.order_stride = layer.num_tokens;
    task.begin = layer.begin;
    task.form = form;
    task.segment = segment;
    task.keys = buffers_.input.keys();
    task.values = buffers_.input.values();
    task.scores = buffers_.scores.as<float>();
    task.order = buffers_.order.as<std::uint32_t>();
    task.heads = plan.as<EncodeHead>();
    if (!seats.empty()) task.seats = reinterpret_cast<std::uint32_t*>(plan.data() + head_bytes);
    task.seat_stride = task.count_max = count_max;
    task.records = records.data();
    task.too_large = &buffers_.verdict.as<Verdict>()->too_large;
    PRECIS_TRY(launch_encode(task, stream_));
    PRECIS_TRY(records.copy_to(out, stream_));
    if (form.encoding == Encoding::kRaw) return stream_.wait();
    Verdict verdict;
    PRECIS_TRY(read_verdict(verdict));  // and waits for the records
    return verdict.too_large == 0 ? Status() : too_large_for(form.encoding, layer.layer);
  });
  buffers_ = {};
  if (!encoded.ok()) (void)retreat_.takes(encoded);  // for the layers to come
  return encoded;
}

}  // namespace precis::kernels
