// Moves rows to and from pages on a device: one copy over the bus, one kernel, one wait.
#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/common/device.h"
#include "kernels/pages/move_rows_cuda.h"
#include "precis/page_mover.h"

namespace precis::kernels {
namespace {

// A stream and its buffers for moves in one direction. The bus carries both directions at the same
// time; two lanes in one direction would only share its speed.
struct Lane {
  explicit Lane(Stream own) : stream(std::move(own)) {}
  // Grows a device buffer if needed; never shrinks it.
  static Status reserve(DeviceBuffer& buffer, std::size_t size_bytes, const Stream& stream) {
    if (buffer.size_bytes() >= size_bytes) return {};
    buffer = DeviceBuffer();
    PRECIS_ASSIGN(buffer, DeviceBuffer::allocate(size_bytes, stream));
    return {};
  }

  std::mutex mutex;
  Stream stream;
  DeviceBuffer packed, plan;  // declared after the stream, which they must not outlive
  PinnedBuffer plan_on_host;
};

Result<std::unique_ptr<Lane>> make_lane() {
  PRECIS_ASSIGN(Stream stream, Stream::create());
  return std::make_unique<Lane>(std::move(stream));
}

// The runs in the form that the device reads, and the pages of their rows.
struct Plan {
  std::vector<MovedRun> runs;
  std::vector<std::uint32_t> table;
  std::uint32_t rows_max = 0;

  void add(const PageRun& run, std::uint32_t page_rows, std::uint64_t keys_at,
           std::uint64_t values_at) {
    MovedRun moved{};
    moved.keys_at = keys_at;
    moved.values_at = values_at;
    moved.table_begin = static_cast<std::uint32_t>(table.size());
    moved.first_row = static_cast<std::uint32_t>(run.first_row % page_rows);
    moved.num_rows = static_cast<std::uint32_t>(run.num_rows);
    const std::uint64_t first = run.first_row / page_rows;
    const std::uint64_t last = (run.first_row + run.num_rows - 1) / page_rows;
    PRECIS_CHECK(last < run.table.size() && run.num_rows <= UINT32_MAX);
    const auto pages = run.table.subspan(first, last - first + 1);
    table.insert(table.end(), pages.begin(), pages.end());
    rows_max = std::max(rows_max, moved.num_rows);
    runs.push_back(moved);
  }
};

// `at` selects a run's offset in `packed`: of its keys, or of its values.
PagePlaces places_of(const PagedRows& pages, const std::byte* packed,
                     const std::vector<MovedRun>& runs, std::uint64_t MovedRun::*at) {
  const auto element = static_cast<std::uint32_t>(dtype_size_bytes(pages.dtype));
  PagePlaces places{};
  places.data = pages.data;
  places.page_stride = pages.page_stride_bytes;
  places.row_stride = pages.row_stride_bytes;
  if (pages.head_dim > 1 && pages.dim_stride_bytes != element) {
    places.piece_bytes = element;
    places.piece_stride = pages.dim_stride_bytes;
    places.row_pieces = pages.head_dim;
    return places;
  }
  // The widest piece that divides all addresses. If there is a single page, or a single row per
  // page, its stride is never used and does not count.
  std::uint64_t bits = pages.row_bytes() | std::bit_cast<std::uintptr_t>(pages.data) |
                       std::bit_cast<std::uintptr_t>(packed) | 16;
  if (pages.num_pages > 1) bits |= pages.page_stride_bytes;
  if (pages.page_rows > 1) bits |= pages.row_stride_bytes;
  for (const MovedRun& run : runs) bits |= run.*at;
  places.piece_bytes = std::uint32_t{1} << std::countr_zero(bits);
  places.piece_stride = places.piece_bytes;
  places.row_pieces = static_cast<std::uint32_t>(pages.row_bytes() / places.piece_bytes);
  return places;
}

// Copies the plan to the device and describes the kernel's work on lane.packed.
Result<MoveRows> prepare(Lane& lane, const PagedRows& keys, const PagedRows& values,
                         const Plan& plan) {
  const std::size_t runs_bytes = plan.runs.size() * sizeof(MovedRun);
  const std::size_t size = runs_bytes + plan.table.size() * sizeof(std::uint32_t);
  PRECIS_TRY(Lane::reserve(lane.plan, size, lane.stream));
  PRECIS_ASSIGN(const MutableBytes on_host, lane.plan_on_host.take(size));
  std::memcpy(on_host.data(), plan.runs.data(), runs_bytes);
  std::memcpy(on_host.data() + runs_bytes, plan.table.data(), size - runs_bytes);
  PRECIS_TRY(lane.plan.copy_from(on_host, lane.stream));
  MoveRows task{};
  task.keys = places_of(keys, lane.packed.data(), plan.runs, &MovedRun::keys_at);
  task.values = places_of(values, lane.packed.data(), plan.runs, &MovedRun::values_at);
  task.page_rows = keys.page_rows;
  task.packed = lane.packed.data();
  task.runs = lane.plan.as<const MovedRun>();
  task.table = reinterpret_cast<const std::uint32_t*>(lane.plan.data() + runs_bytes);
  task.num_runs = static_cast<std::uint32_t>(plan.runs.size());
  task.rows_max = plan.rows_max;
  return task;
}

// ---- scatter and gather -------------------------------------------------------------------------

Status enqueue_scatter(Lane& lane, Bytes rows, const PagedRows& keys, const PagedRows& values,
                       std::span<const PageRun> runs) {
  Plan plan;
  for (const PageRun& run : runs) {
    if (run.num_rows > 0) plan.add(run, keys.page_rows, run.keys_at, run.values_at);
  }
  if (plan.runs.empty()) return {};
  PRECIS_TRY(Lane::reserve(lane.packed, rows.size(), lane.stream));
  PRECIS_TRY(lane.packed.copy_from(rows, lane.stream));
  PRECIS_ASSIGN(const MoveRows task, prepare(lane, keys, values, plan));
  return launch_scatter(task, lane.stream);
}

// A copy of gathered rows to the host.
struct Copy {
  std::uint64_t from, to, size_bytes;
};

// On the device, the keys of all runs come first, then the values, without gaps; the bytes between
// rows on the host must not be written. Rows that are contiguous on the host, too, share one copy.
Status enqueue_gather(Lane& lane, const PagedRows& keys, const PagedRows& values,
                      std::span<const PageRun> runs, MutableBytes rows) {
  const std::uint64_t row_bytes = keys.row_bytes();
  std::vector<Copy> copies;
  std::uint64_t size = 0;
  const auto place = [&](std::uint64_t to, std::uint64_t num_rows) {
    const std::uint64_t at = size, bytes = num_rows * row_bytes;
    size += bytes;
    Copy* const last = copies.empty() ? nullptr : &copies.back();
    if (last != nullptr && last->to + last->size_bytes == to) {
      last->size_bytes += bytes;
    } else if (bytes > 0) {
      copies.push_back({at, to, bytes});
    }
    return at;
  };
  std::vector<std::uint64_t> keys_at;
  for (const PageRun& run : runs) keys_at.push_back(place(run.keys_at, run.num_rows));
  Plan plan;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint64_t values_at = place(runs[i].values_at, runs[i].num_rows);
    if (runs[i].num_rows > 0) plan.add(runs[i], keys.page_rows, keys_at[i], values_at);
  }
  if (plan.runs.empty()) return {};
  PRECIS_TRY(Lane::reserve(lane.packed, size, lane.stream));
  PRECIS_ASSIGN(const MoveRows task, prepare(lane, keys, values, plan));
  PRECIS_TRY(launch_gather(task, lane.stream));
  for (const Copy& copy : copies) {
    PRECIS_TRY(lane.packed.copy_to(rows.subspan(copy.to, copy.size_bytes), lane.stream, copy.from));
  }
  return {};
}

class CudaPageMover final : public PageMover {
 public:
  CudaPageMover(int ordinal, std::unique_ptr<Lane> in, std::unique_ptr<Lane> out)
      : ordinal_(ordinal), in_(std::move(in)), out_(std::move(out)) {}
  ~CudaPageMover() override {
    const auto current = CurrentDevice::set(ordinal_);
    in_.reset();
    out_.reset();
  }

  Status check(const PagedRows& pages) const override {
    // The kernel moves no piece smaller than an element.
    const std::uint64_t size = dtype_size_bytes(pages.dtype);
    const std::uint64_t places = std::bit_cast<std::uintptr_t>(pages.data) |
                                 pages.page_stride_bytes | pages.row_stride_bytes |
                                 pages.dim_stride_bytes;
    if (places % size != 0) {
      return Status::invalid("address and strides must be multiples of an element's " +
                             std::to_string(size) + " bytes");
    }
    PRECIS_ASSIGN(const CurrentDevice current, CurrentDevice::set(ordinal_));
    return check_device_memory(ordinal_, pages.data, pages.reach_bytes());
  }

  Status scatter(Bytes rows, const PagedRows& keys, const PagedRows& values,
                 std::span<const PageRun> runs) override {
    return move(*in_, [&] { return enqueue_scatter(*in_, rows, keys, values, runs); });
  }

  Status gather(const PagedRows& keys, const PagedRows& values, std::span<const PageRun> runs,
                MutableBytes rows) override {
    return move(*out_, [&] { return enqueue_gather(*out_, keys, values, runs, rows); });
  }

  std::shared_ptr<void> pin(MutableBytes memory) override {
    const auto current = CurrentDevice::set(ordinal_);
    if (!current.ok()) return nullptr;
    auto pinned = PinnedMemory::pin(memory);
    if (!pinned.ok()) return nullptr;  // then copies take longer
    return std::make_shared<PinnedMemory>(std::move(*pinned));
  }

 private:
  template <typename Enqueue>
  Status move(Lane& lane, const Enqueue& enqueue) {
    const std::lock_guard lock(lane.mutex);
    PRECIS_ASSIGN(const CurrentDevice current, CurrentDevice::set(ordinal_));
    const Status enqueued = enqueue();
    // Waits even after an error: nothing may be read or written once this returns.
    const Status waited = lane.stream.wait();
    return enqueued.ok() ? waited : enqueued;
  }

  const int ordinal_;
  std::unique_ptr<Lane> in_, out_;
};

}  // namespace

Result<std::shared_ptr<PageMover>> make_cuda_page_mover(int ordinal) {
  PRECIS_ASSIGN(const CurrentDevice current, CurrentDevice::set(ordinal));
  PRECIS_TRY(try_device());
  PRECIS_ASSIGN(auto in, make_lane());
  PRECIS_ASSIGN(auto out, make_lane());
  return std::shared_ptr<PageMover>(
      std::make_shared<CudaPageMover>(ordinal, std::move(in), std::move(out)));
}

}  // namespace precis::kernels
