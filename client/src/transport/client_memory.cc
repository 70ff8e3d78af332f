#include "client/src/transport/client_memory.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace precis {
namespace {

// kWindowBuffer has the first id.
std::atomic<std::uint64_t> last_buffer_id{kWindowBuffer};

class RegionExposure final : public Exposure {
 public:
  RegionExposure(std::shared_ptr<ClientRegions> regions, ClientMemory& memory, MutableBytes part)
      : regions_(std::move(regions)) {
    region_.id = regions_->table()->add(part);
    region_.size_bytes = part.size();
    memory.locate(regions_, part, region_);
    if (region_.buffer == 0 && region_.key.empty()) return;
    has_slot_ = regions_->claim_slot(region_.id, region_.slot);
    if (has_slot_) return;
    region_.buffer = 0;
    region_.key.clear();
  }
  ~RegionExposure() override {
    RegionTable& table = *regions_->table();
    table.retire(region_.id);
    if (has_slot_) regions_->release_slot(region_.slot);
    table.remove(region_.id);  // waits for a thread that may be in a system call
  }
  RemoteRegion region() const override { return region_; }

 private:
  const std::shared_ptr<ClientRegions> regions_;
  RemoteRegion region_;
  bool has_slot_ = false;
};

}  // namespace

ClientMemory::ClientMemory(std::unique_ptr<Pages> pages, std::shared_ptr<RdmaDevice> device)
    : bytes_(pages->bytes()),
      pages_(std::move(pages)),
      buffer_(++last_buffer_id),
      device_(std::move(device)) {}

ClientMemory::~ClientMemory() {
  for (const auto& asked : asked_) {
    if (const auto regions = asked.lock()) regions->unshare(buffer_);
  }
}

std::string ClientMemory::rdma_key() {
  if (!device_) return "";
  const std::lock_guard lock(mutex_);
  if (!std::exchange(tried_rdma_, true)) {
    if (auto made = device_->register_memory(bytes_, MemorySpace::kHost); made.ok()) {
      rdma_ = std::move(*made);
    }
  }
  return rdma_ ? rdma_->key() : "";
}

void ClientMemory::locate(const std::shared_ptr<ClientRegions>& regions, MutableBytes part,
                          RemoteRegion& region) {
  if (regions->has_rdma()) {
    region.key = rdma_key();
    region.address = reinterpret_cast<std::uintptr_t>(part.data());
    return;
  }
  if (!pages_) return;
  {
    // Noted before share(): a server that does not answer in time may still map the memory.
    const std::lock_guard lock(mutex_);
    std::erase_if(asked_, [](const auto& asked) { return asked.expired(); });
    const bool known =
        std::ranges::any_of(asked_, [&](const auto& asked) { return asked.lock() == regions; });
    if (!known) asked_.push_back(regions);
  }
  if (!regions->share(buffer_, *pages_)) return;
  region.buffer = buffer_;
  region.buffer_offset = static_cast<std::uint64_t>(part.data() - bytes_.data());
}

std::unique_ptr<Exposure> expose_memory(std::shared_ptr<ClientRegions> regions,
                                        ClientMemory& memory, MutableBytes part) {
  return std::make_unique<RegionExposure>(std::move(regions), memory, part);
}

}  // namespace precis
