#include "tests/bench/kernels/device_cases.h"

#include <algorithm>

#include "kernels/allocate/allocate_cuda.h"
#include "kernels/allocate/layer_turns.h"
#include "kernels/check/check_cuda.h"
#include "kernels/common/segment_shape.h"
#include "kernels/encode/encode_cuda.h"
#include "kernels/score/probe/probe.h"
#include "kernels/score/score_cuda.h"
#include "kernels/select/best_tokens_cuda.h"
#include "kernels/select/ranked_limits_cuda.h"
#include "kernels/select/select_cuda.h"
#include "precis/joiner.h"

namespace precis::bench {
namespace {

using kernels::DeviceBuffer;
using kernels::LayerDevice;
using kernels::LayerInput;
using kernels::Stream;

constexpr std::size_t kLayersBytesMax = std::size_t{16} << 30;  // of K and V on the device

// A stream, and memory filled over it. Every failure ends the run with its status.
class Device {
 public:
  static Result<Device> open(int ordinal) {
    PRECIS_TRY(kernels::use_device(ordinal));
    PRECIS_ASSIGN(Stream stream, Stream::create());
    return Result<Device>(Device(std::move(stream)));
  }
  Stream& stream() { return stream_; }
  Result<DeviceBuffer> empty(std::size_t bytes) { return DeviceBuffer::allocate(bytes, stream_); }
  Result<DeviceBuffer> filled(Bytes bytes) {
    PRECIS_ASSIGN(DeviceBuffer buffer, empty(bytes.size()));
    PRECIS_TRY(buffer.copy_from(bytes, stream_));
    PRECIS_TRY(stream_.wait());
    return Result<DeviceBuffer>(std::move(buffer));
  }
  template <typename T>
  Result<DeviceBuffer> filled(std::span<const T> values) {
    return filled(std::as_bytes(values));
  }

 private:
  explicit Device(Stream stream) : stream_(std::move(stream)) {}
  Stream stream_;
};

Bytes bytes_of(const HeadsView& packed) { return {packed.data, packed.size_bytes()}; }

// Inputs of all layers: each layer has its own K and V; the smaller inputs are shared.
struct Resident {
  std::vector<DeviceBuffer> entries;  // K, V, K, V, ...
  DeviceBuffer queries, mean, covariance, o_proj, gram, rope, probe;
  std::vector<LayerDevice> layers;
};

Result<Resident> bring(Device& device, const Layers& layers) {
  const LayerInput in = layers.input(0);
  const std::size_t layer_bytes = 2 * in.keys.size_bytes();
  const std::size_t count =
      std::clamp<std::size_t>(kLayersBytesMax / layer_bytes, 1, layers.shape().num_layers);
  Resident r;
  PRECIS_ASSIGN(r.queries, device.filled(bytes_of(in.queries)));
  PRECIS_ASSIGN(r.mean, device.filled(in.query_mean));
  PRECIS_ASSIGN(r.covariance, device.filled(in.query_covariance));
  const std::size_t weights = std::size_t{in.num_q_heads} * in.keys.head_dim * in.o_proj.width *
                              dtype_size_bytes(in.o_proj.dtype);
  PRECIS_ASSIGN(r.o_proj, device.filled(Bytes(in.o_proj.data, weights)));
  PRECIS_ASSIGN(r.gram, device.filled(in.o_proj.gram));
  PRECIS_ASSIGN(r.rope, device.filled(in.rope_frequencies));
  const std::vector<float> probe = turned_probe(in);
  PRECIS_ASSIGN(r.probe, device.filled(std::span<const float>(probe)));
  for (std::size_t i = 0; i < count; ++i) {
    const LayerInput layer = layers.input(i);
    LayerDevice d;
    d.num_kv_heads = layer.num_kv_heads();
    d.group = layer.group();
    d.num_tokens = layer.num_tokens();
    d.head_dim = layer.keys.head_dim;
    d.pushed = layer.queries.num_tokens;
    d.dtype = layer.keys.dtype;
    for (const auto& [view, to] : {std::pair{layer.keys, &d.keys}, {layer.values, &d.values}}) {
      PRECIS_ASSIGN(DeviceBuffer rows, device.filled(bytes_of(view)));
      *to = rows.data();
      r.entries.push_back(std::move(rows));
    }
    d.queries = r.queries.data();
    d.query_mean = r.mean.as<float>();
    d.query_covariance = r.covariance.as<float>();
    d.o_proj = r.o_proj.data();
    d.o_proj_width = layer.o_proj.width;
    d.o_proj_dtype = layer.o_proj.dtype;
    d.gram = r.gram.as<float>();
    d.probe = r.probe.as<float>();
    d.rope_frequencies = r.rope.as<double>();
    d.rope_pairs = static_cast<std::uint32_t>(layer.rope_frequencies.size());
    r.layers.push_back(d);
  }
  return Result<Resident>(std::move(r));
}

// One recipe over all layers. A stage's results stay in each layer's own memory.
class Work {
  struct Layer {
    DeviceBuffer scores, second, limits, order, heads, plan, seats, records;
    std::uint32_t count_max = 0;
  };

 public:
  static Result<Work> make(Device& device, const Recipe& recipe, const Resident& resident,
                           const LayerInput& sizes, double keep) {
    Work w(device, recipe, resident, sizes);
    const std::uint64_t all = std::uint64_t{sizes.num_kv_heads()} * sizes.num_tokens();
    w.entries_ = static_cast<std::uint64_t>(keep * static_cast<double>(all));
    w.select_ = kernels::SelectDevice::of(recipe, sizes);
    w.limits_ =
        kernels::RankedLimitsDevice::of(recipe, w.select_.shape, sizes.num_kv_heads(), w.entries_);
    std::size_t workspace = std::max(kernels::select_workspace_bytes(w.select_),
                                     kernels::ranked_limits_workspace_bytes(w.limits_));
    workspace =
        std::max(workspace, kernels::score_workspace_bytes(recipe, resident.layers.front()));
    kernels::BestTokensDevice& ranked = w.by_score_;
    ranked.num_heads = sizes.num_kv_heads();
    ranked.stride = sizes.num_tokens();
    ranked.first = w.select_.shape.sinks;
    ranked.last = sizes.num_tokens() - w.select_.shape.recent;
    ranked.order_stride = ranked.last - ranked.first;
    workspace = std::max(workspace, kernels::best_tokens_workspace_bytes(ranked));
    PRECIS_ASSIGN(w.workspace_, device.empty(workspace));
    PRECIS_ASSIGN(w.too_large_, device.empty(sizeof(std::uint32_t)));
    PRECIS_ASSIGN(w.best_, device.empty(all * sizeof(std::uint32_t)));
    PRECIS_ASSIGN(w.weight_, device.empty(sizeof(float)));
    for (std::size_t l = 0; l < resident.layers.size(); ++l) {
      Layer layer;
      PRECIS_ASSIGN(layer.scores, device.empty(all * sizeof(float)));
      PRECIS_ASSIGN(layer.second, device.empty(all * sizeof(float)));
      PRECIS_ASSIGN(layer.limits, device.empty(sizes.num_kv_heads() * sizeof(std::uint32_t)));
      PRECIS_ASSIGN(layer.order, device.empty(all * sizeof(std::uint32_t)));
      PRECIS_ASSIGN(layer.heads, device.empty(w.entries_ * sizeof(std::uint16_t)));
      w.layers_.push_back(std::move(layer));
    }
    return Result<Work>(std::move(w));
  }

  Status score() {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      kernels::ScoresDevice out;
      out.scores = layers_[l].scores.as<float>();
      out.second = layers_[l].second.as<float>();
      out.weight = weight_.as<float>();
      PRECIS_TRY(kernels::launch_score(recipe_, resident_.layers[l], workspace_.data(), out,
                                       device_.stream()));
    }
    return {};
  }

  Status select() {
    for (Layer& layer : layers_) {
      select_.scores = limits_.scores = layer.scores.as<float>();
      select_.second = layer.second.as<float>();
      select_.limits = limits_.limits = layer.limits.as<std::uint32_t>();
      select_.order = layer.order.as<std::uint32_t>();
      PRECIS_TRY(kernels::launch_ranked_limits(limits_, workspace_.data(), device_.stream()));
      PRECIS_TRY(kernels::launch_select(select_, workspace_.data(), device_.stream()));
      PRECIS_TRY(allocate(layer));
    }
    return {};
  }

  // Heads compete by score. An order that is not by score is made again, as CudaCompressor does.
  Status allocate(Layer& layer) {
    kernels::AllocateDevice task;
    task.uniform = recipe_.heads == HeadAllocator::kUniform;
    task.guarantee = kernels::Guarantee::of(recipe_);
    task.num_heads = sizes_.num_kv_heads();
    task.num_tokens = sizes_.num_tokens();
    task.protected_count = select_.shape.protected_count();
    task.slots = entries_;
    task.scores = select_.scores;
    task.best = select_.order + task.protected_count;
    task.best_stride = sizes_.num_tokens();
    if (!task.uniform && recipe_.selector != Selector::kTopk) {
      by_score_.scores = task.scores;
      by_score_.limits = limits_.limits;
      by_score_.order = best_.as<std::uint32_t>();
      PRECIS_TRY(kernels::launch_best_tokens(by_score_, workspace_.data(), device_.stream()));
      task.best = by_score_.order;
      task.best_stride = by_score_.order_stride;
    }
    task.sizes = limits_.limits;
    task.heads = layer.heads.as<std::uint16_t>();
    return kernels::launch_allocate(task, device_.stream());
  }

  // Runs the joiner on the turns that select() left: counts, seats, memory for records.
  Result<double> join() {
    double stored = 0;
    for (Layer& layer : layers_) {
      kernels::LayerTurns turns;
      turns.num_tokens = sizes_.num_tokens();
      turns.num_kv_heads = sizes_.num_kv_heads();
      turns.protected_count = select_.shape.protected_count();
      turns.heads.resize(entries_);
      PRECIS_TRY(
          layer.heads.copy_to(std::as_writable_bytes(std::span(turns.heads)), device_.stream()));
      PRECIS_TRY(device_.stream().wait());
      const kernels::SegmentDims dims{1, sizes_.num_kv_heads(), sizes_.num_tokens(), 0};
      PRECIS_ASSIGN(const auto joiner, kernels::Joiner::make(recipe_, dims, entries_, nullptr));
      joiner->add(0, std::move(turns));
      const auto& counts = joiner->counts(0);
      PRECIS_TRY(ranked_enough(layer, counts));
      layer.count_max = *std::ranges::max_element(counts);
      std::vector<kernels::EncodeHead> heads;
      std::vector<std::uint32_t> seats(counts.size() * layer.count_max);
      std::uint64_t offset = 0;
      for (std::size_t h = 0; h < counts.size(); ++h) {
        heads.push_back({offset, counts[h]});
        offset += RecordLayout::of(counts[h], form()).size;
        std::ranges::copy(joiner->seats(0)[h],
                          seats.begin() + static_cast<std::ptrdiff_t>(h * layer.count_max));
      }
      PRECIS_ASSIGN(layer.plan, device_.filled(std::span<const kernels::EncodeHead>(heads)));
      PRECIS_ASSIGN(layer.seats, device_.filled(std::span<const std::uint32_t>(seats)));
      PRECIS_ASSIGN(layer.records, device_.empty(offset));
      stored = static_cast<double>(offset);
    }
    return stored;
  }

  EntryForm form() const { return {sizes_.keys.head_dim, sizes_.keys.dtype, recipe_.encoding}; }

  // The order of a head past its limit is undefined, and encode reads what the counts say.
  Status ranked_enough(const Layer& layer, std::span<const std::uint32_t> counts) {
    std::vector<std::uint32_t> limits(counts.size());
    PRECIS_TRY(layer.limits.copy_to(std::as_writable_bytes(std::span(limits)), device_.stream()));
    PRECIS_TRY(device_.stream().wait());
    for (std::size_t h = 0; h < counts.size(); ++h) {
      if (counts[h] <= select_.shape.protected_count() + limits[h]) continue;
      return Status::internal("head " + std::to_string(h) + " takes " + std::to_string(counts[h]) +
                              " entries, but ranked only " + std::to_string(limits[h]));
    }
    return {};
  }

  Status encode() {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const LayerDevice& in = resident_.layers[l];
      const Layer& layer = layers_[l];
      kernels::EncodeDevice task{};
      task.num_kv_heads = in.num_kv_heads;
      task.num_tokens = task.order_stride = in.num_tokens;
      task.form = form();
      task.keys = in.keys;
      task.values = in.values;
      task.scores = layer.scores.as<float>();
      task.order = layer.order.as<std::uint32_t>();
      task.seats = layer.seats.as<std::uint32_t>();
      task.seat_stride = task.count_max = layer.count_max;
      task.heads = layer.plan.as<kernels::EncodeHead>();
      task.records = layer.records.data();
      task.too_large = too_large_.as<std::uint32_t>();
      PRECIS_TRY(kernels::launch_encode(task, device_.stream()));
    }
    return {};
  }

 private:
  Work(Device& device, const Recipe& recipe, const Resident& resident, const LayerInput& sizes)
      : device_(device), recipe_(recipe), resident_(resident), sizes_(sizes) {}

  Device& device_;
  Recipe recipe_;
  const Resident& resident_;
  LayerInput sizes_;
  std::uint64_t entries_ = 0;
  kernels::SelectDevice select_;
  kernels::RankedLimitsDevice limits_;
  kernels::BestTokensDevice by_score_{};
  DeviceBuffer workspace_, weight_, best_, too_large_;
  std::vector<Layer> layers_;
};

class DeviceCases {
 public:
  DeviceCases(Device& device, const Resident& resident, const Layers& layers, const Plan& plan)
      : device_(device), resident_(resident), layers_(layers), plan_(plan) {}

  Result<std::vector<Row>> run() {
    const auto keys = static_cast<double>(layers_.keys(0).size());
    PRECIS_TRY(ceilings(keys));
    PRECIS_TRY(add("check", "all", "", {2 * keys, 0, 0}, [this] { return check(); }));
    for (const PresetFloor& preset : preset_floors(layers_)) {
      PRECIS_TRY(measure_preset(preset.name, preset.score));
    }
    return std::move(rows_);
  }

 private:
  // `stage` enqueues the work of every layer. Waits for it and reports the time per layer.
  template <typename Fn>
  Status add(const std::string& kind, const std::string& what, const std::string& preset,
             const Floor& floor, const Fn& stage) {
    const std::string name = kind + " " + what;
    if (kind != "ceiling" && !plan_.wanted(name)) return {};
    plan_.began(name);
    Status status;
    Seconds seconds = measure(plan_.runs, plan_.seconds, [&](std::size_t) {
      if (status.ok()) status = stage();
      if (status.ok()) status = device_.stream().wait();
    });
    const auto count = static_cast<double>(resident_.layers.size());
    for (double* value : {&seconds.median, &seconds.min, &seconds.max}) *value /= count;
    rows_.push_back({name, kind, preset, seconds, floor});
    return status;
  }

  // The rate at which the device's copy engine copies the same rows. The engine reads as much as it
  // writes, so the read ceiling counts both.
  Status ceilings(double keys) {
    PRECIS_ASSIGN(DeviceBuffer copy, device_.empty(layers_.keys(0).size()));
    const auto copy_all = [&]() -> Status {
      for (std::size_t l = 0; l < resident_.layers.size(); ++l) {
        PRECIS_TRY(copy.copy_from(resident_.entries[2 * l], device_.stream()));
      }
      return {};
    };
    PRECIS_TRY(add("ceiling", "memcpy", "", {0, keys, 0}, copy_all));
    Row read = rows_.back();
    read.name = "ceiling read";
    read.floor = {2 * keys, 0, 0};
    rows_.push_back(read);
    return {};
  }

  Status check() {
    PRECIS_ASSIGN(DeviceBuffer found, device_.empty(sizeof(std::uint32_t)));
    for (const LayerDevice& l : resident_.layers) {
      const std::uint64_t elements = std::uint64_t{l.num_kv_heads} * l.num_tokens * l.head_dim;
      for (const void* rows : {l.keys, l.values}) {
        PRECIS_TRY(kernels::launch_find_not_finite(l.dtype, rows, elements,
                                                   found.as<std::uint32_t>(), device_.stream()));
      }
    }
    return {};
  }

  Status measure_preset(const std::string& text, const Floor& floor) {
    bool any = false;
    for (const char* kind : {"score ", "select ", "encode ", "preset "}) {
      any = any || plan_.wanted(kind + text);
    }
    if (!any) return {};
    PRECIS_ASSIGN(const Recipe recipe, parse_recipe(text));
    PRECIS_ASSIGN(Work work, Work::make(device_, recipe, resident_, layers_.input(0), plan_.keep));
    PRECIS_TRY(add("score", text, text, floor, [&] { return work.score(); }));
    PRECIS_TRY(work.score());
    PRECIS_TRY(add("select", text, text, {}, [&] { return work.select(); }));
    PRECIS_TRY(work.select());
    PRECIS_ASSIGN(const double stored, work.join());
    PRECIS_TRY(add("encode", text, text, {0, stored, 0}, [&] { return work.encode(); }));
    Floor whole = floor;
    whole.copied_bytes = stored;
    return add("preset", text, text, whole, [&]() -> Status {
      PRECIS_TRY(work.score());
      PRECIS_TRY(work.select());
      return work.encode();
    });
  }

  Device& device_;
  const Resident& resident_;
  const Layers& layers_;
  const Plan& plan_;
  std::vector<Row> rows_;
};

}  // namespace

Result<std::vector<Row>> measure_device_cases(int ordinal, const Layers& layers, const Plan& plan) {
  PRECIS_ASSIGN(Device device, Device::open(ordinal));
  PRECIS_ASSIGN(const Resident resident, bring(device, layers));
  return DeviceCases(device, resident, layers, plan).run();
}

Result<std::string> device_title(int ordinal) {
  PRECIS_TRY(kernels::use_device(ordinal));
  PRECIS_ASSIGN(const std::string name, kernels::device_name(ordinal));
  return "cuda:" + std::to_string(ordinal) + " (" + name + ")";
}

}  // namespace precis::bench
