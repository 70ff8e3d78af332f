#include "tests/bench/kernels/cases.h"

#include <cstdlib>
#include <iostream>

#include "kernels/score/values/value_norms.h"
#include "precis/joiner.h"
#include "precis/ragged_attention.h"
#include "precis/row_code.h"

namespace precis::bench {
namespace {

using kernels::CpuStages;
using kernels::LayerInput;

// The input is generated here, so any failure is a defect.
template <typename T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::cerr << "precis_bench_kernels: " << result.status().to_string() << "\n";
  std::exit(1);
}
void must(const Status& status) {
  if (status.ok()) return;
  std::cerr << "precis_bench_kernels: " << status.to_string() << "\n";
  std::exit(1);
}

// One layer on its way through the stages; memory is reused from layer to layer.
struct Work {
  Work(const CpuStages& c, const Recipe& r, const Layers& layers, double keep)
      : cpu(c),
        recipe(r),
        dims{1, layers.shape().num_kv_heads, layers.num_tokens(), 0},
        entries(static_cast<std::uint64_t>(keep * dims.num_kv_heads * dims.num_tokens)),
        records(kernels::encoded_bytes_max(entries, dims.num_kv_heads,
                                           {layers.shape().head_dim, Dtype::kBf16})) {}
  void score(LayerInput input) {
    input.entries = entries;
    must(cpu.score(recipe, input, scores));
  }
  void select(LayerInput input) {
    input.entries = entries;
    joiner = must(kernels::Joiner::make(recipe, dims, entries, nullptr));
    const std::uint64_t slots = joiner->slots_wanted(0);
    kernels::LayerTurns turns;
    must(cpu.select(recipe, input, scores, slots, orders));
    must(cpu.allocate(recipe, input, scores, orders, slots, turns));
    joiner->add(0, std::move(turns));
  }
  std::size_t encode(const LayerInput& input) {
    const auto& counts = joiner->counts(0);
    const std::size_t size =
        kernels::encoded_bytes(counts, {input.keys.head_dim, input.keys.dtype, recipe.encoding});
    must(cpu.encode(input, scores, orders, counts, joiner->seats(0), SegmentId{},
                    records.all().first(size), recipe.encoding));
    return size;
  }

  const CpuStages& cpu;
  const Recipe recipe;
  kernels::SegmentDims dims;
  std::uint64_t entries;
  kernels::LayerScores scores;
  kernels::RetentionOrders orders;
  std::unique_ptr<kernels::Joiner> joiner;
  ArenaArray<std::byte> records;
};

constexpr double kWindowRows = 32;  // queries that observe, of each query head

// FLOPs of the products of all query heads with their rows, per column of a head's matrix.
double flops_a_column(const Layers& layers) {
  const ModelShape& shape = layers.shape();
  return 2.0 * layers.num_tokens() * shape.head_dim * shape.num_q_heads;
}

class Cases {
 public:
  Cases(const CpuStages& cpu, const Layers& layers, const Plan& plan)
      : cpu_(cpu), layers_(layers), plan_(plan) {}

  std::vector<Row> run() {
    const auto keys = static_cast<double>(layers_.keys(0).size());
    const double gram = flops_a_column(layers_) * layers_.shape().head_dim;
    const double exact = flops_a_column(layers_) * layers_.shape().hidden;
    check(keys);
    norm("v_l1", ValueNorm::kVL1, {keys, 0, 0});
    norm("l2_gram", ValueNorm::kL2Gram, {keys, 0, gram});
    norm("l1_exact", ValueNorm::kL1Exact, {keys, 0, exact});
    for (const PresetFloor& p : preset_floors(layers_)) preset(p.name, p.score);
    attend();
    for (const RowCode code : {RowCode::kInt8, RowCode::kInt6, RowCode::kInt4}) {
      code_rows(code);
    }
    return std::move(rows_);
  }

 private:
  template <typename Fn>
  void add(const std::string& kind, const std::string& what, const std::string& preset,
           const Floor& floor, const Fn& fn) {
    const std::string name = kind + " " + what;
    if (!plan_.wanted(name)) return;
    plan_.began(name);
    rows_.push_back({name, kind, preset, measure(plan_.runs, plan_.seconds, fn), floor});
  }

  void check(double keys) {
    const Recipe recipe = must(parse_recipe("knorm"));
    add("check", "all", "", {2 * keys, 0, 0},
        [&](std::size_t i) { must(cpu_.check(recipe, layers_.input(i))); });
  }

  // Decoding one token. Head h of H has (h + 1) / H of the layer's rows.
  void attend() {
    const ModelShape& shape = layers_.shape();
    const std::vector<float> queries(std::size_t{shape.num_q_heads} * shape.head_dim, 0.1f);
    std::vector<float> out(queries.size());
    std::vector<kernels::RaggedRows> rows(shape.num_kv_heads);
    double bytes = 0;
    for (std::uint32_t head = 0; head < shape.num_kv_heads; ++head) {
      rows[head] = {head, layers_.num_tokens() * (head + 1) / shape.num_kv_heads};
      bytes += 4.0 * rows[head].count * shape.head_dim;
    }
    add("attend", "ragged", "ragged", {bytes, 0, 0}, [&](std::size_t i) {
      const LayerInput input = layers_.input(i);
      for (kernels::RaggedRows& each : rows) {
        each.keys = input.keys.row(each.head, 0);
        each.values = input.values.row(each.head, 0);
      }
      must(attention_.attend({shape.num_kv_heads, shape.num_q_heads / shape.num_kv_heads,
                              shape.head_dim, input.keys.dtype, queries, 0.1f, rows},
                             out));
    });
  }

  // Coding the keys of one head, and decoding them again. The ceiling is a copy of the rows.
  void code_rows(RowCode code) {
    const auto keys = layers_.input(0).keys;
    const RowForm form{keys.head_dim, keys.dtype, code};
    const std::size_t count = layers_.num_tokens();
    const auto bytes = static_cast<double>(count * keys.row_bytes());
    std::vector<std::byte> coded(count * form.bytes()), rows(count * keys.row_bytes());
    const std::string name = code == RowCode::kInt8   ? "int8"
                             : code == RowCode::kInt6 ? "int6"
                                                      : "int4";
    add("code", name, "", {0, bytes, 0}, [&](std::size_t i) {
      kernels::encode_rows(form, count, layers_.input(i).keys.row(0, 0), coded.data());
    });
    add("decode", name, "", {0, bytes, 0},
        [&](std::size_t) { kernels::decode_rows(form, count, coded.data(), rows.data()); });
  }

  void norm(const std::string& name, ValueNorm norm, const Floor& floor) {
    add("norm", name, "", floor, [&](std::size_t i) {
      if (kernels::value_norms(cpu_.context(), norm, layers_.input(i)).empty()) std::abort();
    });
  }

  void preset(const std::string& text, const Floor& score) {
    bool any = plan_.wanted("score " + text + ", lse pushed");
    for (const char* kind : {"score ", "select ", "encode ", "preset "}) {
      any = any || plan_.wanted(kind + text);
    }
    if (!any) return;
    Work work(cpu_, must(parse_recipe(text)), layers_, plan_.keep);
    add("score", text, text, score, [&](std::size_t i) { work.score(layers_.input(i)); });
    if (work.recipe.needs_queries()) {
      Floor one_pass = score;
      one_pass.remade_flops = 0;
      one_pass.exps /= 2;
      add("score", text + ", lse pushed", text, one_pass,
          [&](std::size_t i) { work.score(layers_.input_with_lse(i)); });
    }
    work.score(layers_.input(0));
    add("select", text, text, {}, [&](std::size_t) { work.select(layers_.input(0)); });
    work.select(layers_.input(0));
    const auto stored = static_cast<double>(work.encode(layers_.input(0)));
    add("encode", text, text, {0, stored, 0},
        [&](std::size_t i) { work.encode(layers_.input(i)); });
    Floor whole = score;
    whole.copied_bytes = stored;
    add("preset", text, text, whole, [&](std::size_t i) {
      const LayerInput input = layers_.input(i);
      work.score(input);
      work.select(input);
      work.encode(input);
    });
  }

  const CpuStages& cpu_;
  const Layers& layers_;
  const Plan& plan_;
  const kernels::RaggedAttention attention_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<PresetFloor> preset_floors(const Layers& layers) {
  const auto keys = static_cast<double>(layers.keys(0).size());
  const double a_column = flops_a_column(layers);
  const double window = a_column * kWindowRows, gram = a_column * layers.shape().head_dim;
  const double exact = a_column * layers.shape().hidden;
  const double exps = 2.0 * kWindowRows * layers.shape().num_q_heads * layers.num_tokens();
  return {{"knorm", {keys, 0, 0}},
          {"keydiff", {keys, 0, 0, keys}},
          {"lagkv", {2 * keys, 0, 0}},
          {"kvdiff", {2 * keys, 0, 0, keys}},
          {"kvprobe", {2 * keys, 0, 0}},
          {"snapkv", {keys, 0, window, 0, window, exps}},
          {"ada_snapkv", {keys, 0, window, 0, window, exps}},
          {"expected_attention", {2 * keys, 0, gram}},
          {"criticalkv_ada(value_norm=l2_gram)", {2 * keys, 0, window + gram, 0, window, exps}},
          {"criticalkv_ada", {2 * keys, 0, window + exact, 0, window, exps}}};
}

std::vector<Row> measure_cases(const CpuStages& cpu, const Layers& layers, const Plan& plan) {
  return Cases(cpu, layers, plan).run();
}

}  // namespace precis::bench
