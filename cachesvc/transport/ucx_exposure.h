// Client memory that a server may reach over UCX or within the host.
#pragma once

#include <functional>
#include <memory>

#include "cachesvc/transport/ucx_link.h"

namespace precis {

class UcxExposure final : public Exposure {
 public:
  // Any thread, as for its end.
  // `part` of `memory`.
  UcxExposure(std::shared_ptr<UcxLink> link, const UcxMemory& memory, MutableBytes part);
  ~UcxExposure() override;
  RemoteRegion region() const override { return region_; }

 private:
  void on_loop(std::function<void()> fn);
  void finish();

  const std::shared_ptr<UcxLink> link_;
  const std::shared_ptr<RegionTable> table_;  // the link's, which may go first
  RemoteRegion region_;
  HostSlot* slot_ = nullptr;
};

}  // namespace precis
