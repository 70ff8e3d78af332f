// All puts in progress. Loop thread only.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "cachesvc/pipeline/open_put.h"

namespace precis {

class OpenPuts {
 public:
  void add(const std::shared_ptr<OpenPut>& put) {
    std::erase_if(puts_, [](const auto& each) { return each.expired(); });
    puts_.push_back(put);
  }

  // The put of this name that waits for further writers; null if there is none.
  std::shared_ptr<OpenPut> find_joint(const Digest& name) const {
    for (const auto& each : puts_) {
      const auto put = each.lock();
      if (!put || put->joint->writers() == 1 || put->joint_name != name) continue;
      if (put->failure.ok() && !put->joint->is_full()) return put;
    }
    return nullptr;
  }

  // Whether a put that is in progress has this parent.
  bool builds_on(const SegmentId& parent) const {
    return std::ranges::any_of(puts_, [&](const auto& each) {
      const auto put = each.lock();
      return put && put->failure.ok() && put->row.parent == parent;
    });
  }

 private:
  std::vector<std::weak_ptr<OpenPut>> puts_;  // some may have ended
};

}  // namespace precis
