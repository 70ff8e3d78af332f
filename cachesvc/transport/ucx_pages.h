// Memory that the transport made, and which links' servers may have mapped it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cachesvc/transport/pages.h"
#include "cachesvc/transport/ucx_link.h"

namespace precis {

class UcxPages {
 public:
  UcxPages(std::unique_ptr<Pages> pages, std::uint64_t id) : pages_(std::move(pages)), id_(id) {}
  // Tells the servers.
  ~UcxPages();
  UcxPages(const UcxPages&) = delete;
  UcxPages& operator=(const UcxPages&) = delete;

  // Says in the key of `region`, a part of the pages, what its server may map. Any thread.
  void name_in(RegionKey& key, MutableBytes region, const std::shared_ptr<UcxLink>& link);

 private:
  const std::unique_ptr<Pages> pages_;
  const std::uint64_t id_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<UcxLink>> told_;  // guarded by mutex_
};

}  // namespace precis
