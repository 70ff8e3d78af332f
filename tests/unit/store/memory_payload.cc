#include "tests/unit/store/memory_payload.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace precis::testing {
namespace {

class StoredValue final : public StagedValue {
 public:
  StoredValue(MemoryValues& memory, const Extent& place) : memory_(memory), place_(place) {}
  ~StoredValue() override {
    if (!kept_) memory_.free(place_);
  }
  StoredValue(const StoredValue&) = delete;
  StoredValue& operator=(const StoredValue&) = delete;
  Status wait() override { return {}; }
  std::optional<Status> ended() const override { return Status(); }
  void retry() override {}
  std::optional<SharedBytes> unwritten() const override { return std::nullopt; }
  std::uint64_t size_bytes() const override { return place_.size; }
  Extent place() const override { return place_; }
  void keep() override { kept_ = true; }

 private:
  MemoryValues& memory_;
  const Extent place_;
  bool kept_ = false;
};

class SharedValue final : public PinnedValue {
 public:
  explicit SharedValue(MemoryValues::Value value) : value_(std::move(value)) {}
  Status read_into(MutableBytes into) const override {
    if (!value_ || value_->size() != into.size()) return Status::corruption("memory payload: size");
    std::ranges::copy(*value_, into.begin());
    return {};
  }
  Result<std::vector<std::byte>> read() const override {
    if (!value_) return Status::corruption("memory payload: no such value");
    return *value_;
  }

 private:
  const MemoryValues::Value value_;  // null if there is none at the place
};

}  // namespace

// ---- the memory

void MemoryValues::keep_only(std::span<const Extent> live) {
  std::set<std::uint32_t> numbers;
  const std::lock_guard lock(mutex_);
  for (const Extent& place : live) numbers.insert(place.file);
  std::erase_if(values_, [&](const auto& value) { return !numbers.contains(value.first); });
  live_bytes_ = 0;
  for (const auto& [number, value] : values_) live_bytes_ += value->size();
}

Extent MemoryValues::add(Bytes value) {
  const std::lock_guard lock(mutex_);
  values_[next_] = std::make_shared<const std::vector<std::byte>>(value.begin(), value.end());
  live_bytes_ += value.size();
  return {next_++, 0, value.size()};
}

MemoryValues::Value MemoryValues::find(const Extent& place) const {
  const std::lock_guard lock(mutex_);
  const auto at = values_.find(place.file);
  return at == values_.end() || at->second->size() != place.size ? nullptr : at->second;
}

void MemoryValues::free(const Extent& place) {
  const std::lock_guard lock(mutex_);
  live_bytes_ -= place.size;
}

std::uint64_t MemoryValues::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}

// ---- the store

std::shared_ptr<StagedValue> MemoryPayload::stage(SharedBytes value, bool) {
  return std::make_shared<StoredValue>(memory_, memory_.add(value.bytes));
}

void MemoryPayload::then(std::function<void()> fn, std::weak_ptr<const void> fn_owner) {
  thread_.post([fn = std::move(fn), fn_owner = std::move(fn_owner)] {
    if (const auto owner = fn_owner.lock()) fn();
  });
}

std::unique_ptr<const PinnedValue> MemoryPayload::pin(const Extent& place, Pinning) const {
  return std::make_unique<SharedValue>(memory_.find(place));
}

void MemoryPayload::free(std::span<const Extent> places) {
  for (const Extent& place : places) memory_.free(place);
}

}  // namespace precis::testing
