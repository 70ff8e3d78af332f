#include "tests/bench/kernels/ceilings.h"

#include <atomic>
#include <cstring>

#include "kernels/common/host_device.h"
#include "kernels/common/isa.h"
#include "kernels/common/thread_pool.h"
#include "kernels/score/attention/attention_products.h"

namespace precis::bench {
namespace {

namespace amx = kernels::amx;

constexpr std::size_t kPieceBytes = 256 << 10;  // one work item

using Words = std::uint64_t __attribute__((vector_size(64)));

PRECIS_INLINE std::uint64_t add_up(const std::byte* data, std::size_t size) {
  Words sums[4] = {};
  std::size_t at = 0;
  for (; at + sizeof sums <= size; at += sizeof sums) {
    for (std::size_t i = 0; i < 4; ++i) {
      Words x;
      std::memcpy(&x, data + at + i * sizeof x, sizeof x);
      sums[i] += x;
    }
  }
  const Words all = sums[0] + sums[1] + sums[2] + sums[3];
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < 8; ++i) total += all[i];
  for (; at < size; ++at) total += std::to_integer<std::uint64_t>(data[at]);
  return total;
}

// Rounds over data that fits the first-level caches of one core.
constexpr std::size_t kRounds = 4096;
constexpr std::size_t kCached = 8192;  // f32

// Several sums, so that no addition waits for the previous one.
template <typename Products>
PRECIS_INLINE float add_exps(const float* logits) {
  using kernels::kLanes;
  kernels::Lanes sums[4] = {};
  for (std::size_t i = 0; i < kCached; i += 4 * kLanes) {
    for (std::size_t k = 0; k < 4; ++k) {
      sums[k] += Products::exp2(kernels::load_lanes(logits + i + k * kLanes) * 0.1f - 3.0f);
    }
  }
  return kernels::sum_lanes(sums[0] + sums[1] + sums[2] + sums[3]);
}
template <typename Products>
PRECIS_INLINE float add_exps_over(const float* logits) {
  float sum = 0;
  for (std::size_t i = 0; i < kRounds; ++i) sum += add_exps<Products>(logits);
  return sum;
}

constexpr std::size_t kDepth = 128;
PRECIS_INLINE float multiply_tiles(const std::uint16_t* a, const std::uint16_t* b, float* c) {
  [[maybe_unused]] const amx::TileScope tiles;
  for (std::size_t i = 0; i < kRounds; ++i) {
    amx::multiply(a, b, amx::panel_size(kDepth), 0, amx::steps_of(kDepth), amx::NoParts{}, c,
                  [](std::size_t) {});
  }
  return c[0];
}

class Ceilings {
 public:
  Ceilings(const Layers& layers, const Plan& plan)
      : layers_(layers),
        plan_(plan),
        pool_(0),
        isa_(kernels::detect_isa()),
        head_bytes_(layers.keys(0).size() / layers.shape().num_kv_heads),
        pieces_((head_bytes_ + kPieceBytes - 1) / kPieceBytes) {}

  std::vector<Row> measure_all() {
    const auto keys = static_cast<double>(layers_.keys(0).size());
    add("read", {keys, 0, 0}, read(1));
    add("read twice", {0, 0, 0, keys}, read(2));
    add("memcpy", {0, keys, 0}, copy());
    const auto cores = static_cast<double>(pool_.num_threads());
    add("exps", {0, 0, 0, 0, 0, cores * kRounds * kCached}, exps());
    if (isa_ != kernels::Isa::kAmx) return std::move(rows_);
    add("tiles", {0, 0, cores * kRounds * 2 * amx::kBlock * amx::kBlock * kDepth}, tiles());
    return std::move(rows_);
  }

 private:
  void add(const std::string& name, const Floor& done, const Seconds& seconds) {
    rows_.push_back({"ceiling " + name, "ceiling", "", seconds, done});
  }

  // Calls fn(piece) over each head's keys, `times` times, every other time backwards: the items
  // have the same order, and are assigned to threads in the same way, as in keydiff.
  template <typename Fn>
  void for_pieces(Bytes keys, std::size_t times, const Fn& fn) {
    pool_.parallel_for(keys.size() / head_bytes_ * times * pieces_, [&](std::size_t i) {
      const std::size_t head = i / (times * pieces_) * head_bytes_, of_head = i % (times * pieces_);
      const std::size_t in_turn = of_head % pieces_;
      const std::size_t at = of_head / pieces_ % 2 == 0 ? in_turn : pieces_ - 1 - in_turn;
      const std::size_t first = at * kPieceBytes;
      fn(keys.subspan(head + first, std::min(kPieceBytes, head_bytes_ - first)), head + first);
    });
  }

  Seconds read(std::size_t times) {
    const auto body = kernels::for_isa<&add_up>(isa_);
    std::atomic<std::uint64_t> sink{0};
    return measure(plan_.runs, plan_.seconds, [&](std::size_t i) {
      for_pieces(layers_.keys(i), times, [&](Bytes piece, std::size_t) {
        sink.fetch_add(body(piece.data(), piece.size()), std::memory_order_relaxed);
      });
    });
  }

  Seconds copy() {
    ArenaArray<std::byte> target(layers_.keys(0).size());
    return measure(plan_.runs, plan_.seconds, [&](std::size_t i) {
      for_pieces(layers_.keys(i), 1, [&](Bytes piece, std::size_t first) {
        std::memcpy(target.all().data() + first, piece.data(), piece.size());
      });
    });
  }

  // body(core) -> float, on every core.
  template <typename Body>
  Seconds measure_rounds(const Body& body) {
    std::atomic<float> sink{0};
    return measure(plan_.runs, plan_.seconds, [&](std::size_t) {
      pool_.parallel_for(pool_.num_threads(), [&](std::size_t core) {
        sink.store(body(core), std::memory_order_relaxed);
      });
    });
  }

  Seconds exps() {
    const auto body = isa_ == kernels::Isa::kAmx
                          ? kernels::for_avx512<&add_exps_over<kernels::TileProducts>>()
                          : kernels::for_isa<&add_exps_over<kernels::VectorProducts>>(isa_);
    const kernels::AlignedArray<float> logits(kCached, 1.0f);
    return measure_rounds([&](std::size_t) { return body(logits.data()); });
  }

  Seconds tiles() {
    const auto body = kernels::for_avx512<&multiply_tiles>();
    const std::size_t block = amx::kBlock * amx::kBlock;
    amx::Panels a(2 * amx::panel_size(kDepth), std::uint16_t{0});
    for (std::size_t i = 0; i < 2 * amx::panel_size(kDepth); ++i) {
      a.data()[i] = amx::bf16_of_f32(static_cast<float>(i % 97) - 48);
    }
    kernels::AlignedArray<float> products(block * pool_.num_threads(), 0.0f);
    return measure_rounds(
        [&](std::size_t core) { return body(a.data(), a.data(), products.data() + core * block); });
  }

  const Layers& layers_;
  const Plan& plan_;
  kernels::ThreadPool pool_;
  const kernels::Isa isa_;
  const std::size_t head_bytes_, pieces_;  // of one head's keys
  std::vector<Row> rows_;
};

}  // namespace

std::vector<Row> measure_ceilings(const Layers& layers, const Plan& plan) {
  return Ceilings(layers, plan).measure_all();
}

}  // namespace precis::bench
