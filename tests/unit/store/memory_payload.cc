#include "tests/unit/store/memory_payload.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace precis::testing {
namespace {

class StoredValue final : public StagedValue {
 public:
  StoredValue(MemoryValues& memory, SharedBytes value)
      : memory_(memory), value_(std::move(value)), size_bytes_(value_.bytes.size()) {
    retry();
  }
  ~StoredValue() override {
    if (!kept_ && place_.ok()) memory_.free(*place_);
  }
  StoredValue(const StoredValue&) = delete;
  StoredValue& operator=(const StoredValue&) = delete;
  Status wait() override { return place_.status(); }
  std::optional<Status> ended() const override { return place_.status(); }
  void retry() override {
    place_ = memory_.add(value_.bytes);
    if (place_.ok()) value_ = {};
  }
  std::optional<SharedBytes> unwritten() const override {
    return place_.ok() ? std::nullopt : std::optional(value_);
  }
  std::uint64_t size_bytes() const override { return size_bytes_; }
  Extent place() const override { return *place_; }
  void keep() override { kept_ = true; }

 private:
  MemoryValues& memory_;
  SharedBytes value_;  // empty once it is stored
  const std::uint64_t size_bytes_;
  Result<Extent> place_ = Status::internal("not stored yet");
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

std::unique_ptr<MemoryValues> MemoryValues::copy() const {
  auto other = std::make_unique<MemoryValues>();
  const std::lock_guard lock(mutex_);
  other->values_ = values_;
  other->next_ = next_;
  other->live_bytes_ = live_bytes_;
  other->capacity_ = capacity_;
  return other;
}

void MemoryValues::set_capacity(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

Result<Extent> MemoryValues::add(Bytes value) {
  const std::lock_guard lock(mutex_);
  if (live_bytes_ + value.size() > capacity_) {
    return Status::out_of_space("memory payload: " + std::to_string(live_bytes_) + " of " +
                                std::to_string(capacity_) + " B are used");
  }
  values_[next_] = std::make_shared<const std::vector<std::byte>>(value.begin(), value.end());
  live_bytes_ += value.size();
  return Extent{next_++, 0, value.size()};
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
  return std::make_shared<StoredValue>(memory_, std::move(value));
}

void MemoryPayload::then(std::function<void()> fn, std::weak_ptr<const void> fn_owner) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back({std::move(fn), std::move(fn_owner)});
  }
  thread_->post([this] { run_one(); });
}

bool MemoryPayload::run_one() {
  const std::lock_guard running(running_);
  Posted next;
  {
    const std::lock_guard lock(mutex_);
    if (posted_.empty()) return false;
    next = std::move(posted_.front());
    posted_.pop_front();
  }
  if (const auto owner = next.owner.lock()) next.fn();
  return true;
}

void MemoryPayload::settle() {
  while (run_one()) {
  }
}

std::unique_ptr<const PinnedValue> MemoryPayload::pin(const Extent& place, Pinning) const {
  return std::make_unique<SharedValue>(memory_.find(place));
}

void MemoryPayload::free(std::span<const Extent> places) {
  for (const Extent& place : places) memory_.free(place);
}

}  // namespace precis::testing
