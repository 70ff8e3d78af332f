#include "client/src/page_movers.h"

#include <string>

#include "client/src/paged_rows.h"

namespace precis {
namespace {

class HostMover final : public PageMover {
 public:
  Status check(const PagedRows&) const override { return {}; }

  Status scatter(Bytes rows, const PagedRows& keys, const PagedRows& values,
                 std::span<const PageRun> runs) override {
    for (const PageRun& run : runs) {
      scatter_rows(rows.data() + run.keys_at, run.first_row, run.num_rows, keys, run.table);
      scatter_rows(rows.data() + run.values_at, run.first_row, run.num_rows, values, run.table);
    }
    return {};
  }

  Status gather(const PagedRows& keys, const PagedRows& values, std::span<const PageRun> runs,
                MutableBytes rows) override {
    for (const PageRun& run : runs) {
      gather_rows(keys, run.table, run.first_row, run.num_rows, rows.data() + run.keys_at);
      gather_rows(values, run.table, run.first_row, run.num_rows, rows.data() + run.values_at);
    }
    return {};
  }

  std::shared_ptr<void> pin(MutableBytes) override { return nullptr; }
};

std::string place_of(const PagedRows& pages) {
  if (pages.space == MemorySpace::kHost) return "in host memory";
  return "on device " + std::to_string(pages.device);
}

}  // namespace

PageMovers::PageMovers(MakePageMover make) : make_(make), host_(std::make_shared<HostMover>()) {}

Result<std::shared_ptr<PageMover>> PageMovers::find(const PagedRows& keys,
                                                    const PagedRows& values) {
  if (place_of(keys) != place_of(values)) {
    return Status::invalid("pages: keys lie " + place_of(keys) + ", values " + place_of(values) +
                           ", must be in the same memory");
  }
  if (keys.space == MemorySpace::kHost) return host_;
  auto mover = on_device(keys.device);
  if (mover.status().code() == StatusCode::kUnsupported) {
    return Status::unsupported("pages: memory " + place_of(keys) + " is not available: " +
                               mover.status().message() + "; use pages in host memory");
  }
  PRECIS_TRY(mover.status().with_context("pages"));
  PRECIS_TRY((*mover)->check(keys).with_context("pages.keys"));
  PRECIS_TRY((*mover)->check(values).with_context("pages.values"));
  return mover;
}

Result<std::shared_ptr<PageMover>> PageMovers::on_device(int device) {
  if (make_ == nullptr) return Status::unsupported("this client has no page_mover");
  const std::lock_guard lock(mutex_);
  const auto known = devices_.find(device);
  if (known != devices_.end()) return known->second;
  PRECIS_ASSIGN(auto mover, make_(device));
  devices_[device] = mover;
  return mover;
}

}  // namespace precis
