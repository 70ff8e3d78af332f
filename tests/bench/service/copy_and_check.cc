#include "tests/bench/service/copy_and_check.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cachesvc/base/stream_copy.h"
#include "precis/record.h"
#include "tests/bench/all_at_once.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kEntries = 2048, kHeadDim = 128;  // 1 MiB of K and V
constexpr std::size_t kThreads = 2;                       // as many as the service copies with
constexpr std::size_t kPoolBytes = std::size_t{256} << 20;

std::vector<std::byte> make_record() {
  const auto layout = RecordLayout::of(kEntries, {kHeadDim, Dtype::kBf16});
  std::vector<std::byte> record(layout.size);
  for (std::uint32_t i = 0; i < kEntries; ++i) {
    const std::uint32_t seat = i + 1;
    std::memcpy(record.data() + layout.positions + std::size_t{i} * 4, &i, sizeof i);
    std::memcpy(record.data() + layout.seats + std::size_t{i} * 4, &seat, sizeof seat);
  }
  kernels::seal_record(record, 0, 0, kEntries, {kHeadDim, Dtype::kBf16}, SegmentId{});
  return record;
}

void fill(MutableBytes pool, const std::vector<std::byte>& record) {
  for (; pool.size() >= record.size(); pool = pool.subspan(record.size())) {
    std::ranges::copy(record, pool.begin());
  }
}

}  // namespace

CopyAndCheck::CopyAndCheck(std::size_t size_bytes, std::size_t layers)
    : record_(make_record()),
      layers_(layers),
      per_layer_(std::max<std::size_t>(size_bytes / layers / record_.size(), 1)),
      from_(std::max(kPoolBytes, layers_ * per_layer_ * record_.size())),
      to_(from_.all().size()) {
  // next() returns whole gets, one after another.
  for (std::size_t i = 0; i < from_.all().size() / bytes(); ++i) {
    fill(from_.next(bytes()), record_);
    fill(to_.next(bytes()), record_);
  }
}

Result<double> CopyAndCheck::rate() {
  const MutableBytes from = from_.next(bytes()), to = to_.next(bytes());
  std::atomic<std::size_t> next{0};
  Status ended[kThreads];
  const double seconds = all_at_once(kThreads, [&](std::size_t i) {
    for (std::size_t at; ended[i].ok() && (at = next++) < 2 * layers_ * per_layer_;) {
      ended[i] = step(at, from, to);
    }
  });
  for (const Status& status : ended) PRECIS_TRY(status);
  return static_cast<double>(bytes()) * 1e-9 / seconds;
}

Status CopyAndCheck::check() {
  MutableBytes to = to_.next(bytes());
  for (; !to.empty(); to = to.subspan(record_.size())) {
    PRECIS_ASSIGN(const kernels::RecordView record, kernels::open_record(to.first(record_.size())));
    PRECIS_TRY(kernels::verify_record(record));
  }
  return {};
}

// Does step `at`. Order of steps: copies of layer 0, then in turn copies of a layer and checks of
// the layer before.
Status CopyAndCheck::step(std::size_t at, MutableBytes from, MutableBytes to) const {
  const std::size_t turn = at / per_layer_, last = 2 * layers_ - 1;
  const bool copies = turn == 0 || (turn % 2 == 1 && turn != last);
  const std::size_t layer = turn == last ? layers_ - 1 : copies ? (turn + 1) / 2 : turn / 2 - 1;
  const std::size_t offset = (layer * per_layer_ + at % per_layer_) * record_.size();
  const MutableBytes there = to.subspan(offset, record_.size());
  if (copies) {
    stream_copy(there.data(), from.data() + offset, there.size());
    return {};
  }
  PRECIS_ASSIGN(const kernels::RecordView record, kernels::open_record(there));
  return kernels::verify_record(record);
}

}  // namespace precis::bench
