// Payload values in files that stay readable for a long time, whatever happens to their keys.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/store.h"

namespace precis {

class KeptExtents final : public KeptPayload {
 public:
  // `pins`: pins of kind kKeep, in the order of the keys. `ended` is called when the values' space
  // may be reclaimed.
  KeptExtents(std::vector<ExtentFiles::Pin> pins, std::function<void()> ended)
      : pins_(std::move(pins)), ended_(std::move(ended)) {}
  ~KeptExtents() override {
    pins_.clear();
    ended_();
  }
  KeptExtents(const KeptExtents&) = delete;
  KeptExtents& operator=(const KeptExtents&) = delete;
  Status read_into(std::size_t value, MutableBytes into) const override {
    const std::uint64_t size = pins_.at(value).size();
    if (into.size() == size) return pins_[value].read(into);
    return Status::corruption("payload: " + std::to_string(size) + " B are kept, " +
                              std::to_string(into.size()) + " B expected");
  }

 private:
  std::vector<ExtentFiles::Pin> pins_;
  const std::function<void()> ended_;
};

}  // namespace precis
