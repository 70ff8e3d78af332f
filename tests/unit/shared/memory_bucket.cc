#include "tests/unit/shared/memory_bucket.h"

#include <algorithm>
#include <memory>

namespace precis::testing {

bool MemoryBucket::create(const std::string& name, Bytes value) {
  const std::lock_guard lock(mutex_);
  return objects_.try_emplace(name, value.begin(), value.end()).second;
}

void MemoryBucket::put(const std::string& name, Bytes value) {
  const std::lock_guard lock(mutex_);
  objects_[name].assign(value.begin(), value.end());
}

bool MemoryBucket::get(const std::string& name, std::vector<std::byte>& value) const {
  const std::lock_guard lock(mutex_);
  ++requests_.gets;
  const auto found = objects_.find(name);
  if (found != objects_.end()) value = found->second;
  return found != objects_.end();
}

void MemoryBucket::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (objects_.erase(name) > 0) removed_.insert(name);
}

bool MemoryBucket::was_removed(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return removed_.contains(name) && !objects_.contains(name);
}

ObjectStore::Page MemoryBucket::list(const std::string& prefix, const std::string& after) const {
  const std::lock_guard lock(mutex_);
  ++requests_.lists;
  ObjectStore::Page page;
  auto at = after < prefix ? objects_.lower_bound(prefix) : objects_.upper_bound(after);
  for (; at != objects_.end() && at->first.starts_with(prefix); ++at) {
    page.more = page.names.size() == page_;
    if (page.more) break;
    page.names.push_back(at->first);
  }
  return page;
}

MemoryBucket::Requests MemoryBucket::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::size_t MemoryBucket::objects() const {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

Status BucketClient::begin_read() const {
  const Fault fault = faults_.next ? faults_.next() : Fault::kNone;
  return fault == Fault::kNone ? Status() : Status::unavailable("no answer");
}

Status BucketClient::change(const std::string& name, const std::function<void()>& make) {
  const Fault fault = faults_.next ? faults_.next() : Fault::kNone;
  if (fault == Fault::kNone || fault == Fault::kAnswerLost) make();
  if (fault == Fault::kLate) faults_.late(name, make);
  return fault == Fault::kNone ? Status() : Status::unavailable("no answer");
}

Result<bool> BucketClient::create(const std::string& name, Bytes value) {
  const auto created = std::make_shared<bool>(false);
  const auto make = [this, name, created, copy = std::vector(value.begin(), value.end())] {
    *created = bucket_.create(name, copy);
  };
  PRECIS_TRY(change(name, make));
  return *created;
}

Status BucketClient::put(const std::string& name, Bytes value) {
  return change(name, [this, name, copy = std::vector(value.begin(), value.end())] {
    bucket_.put(name, copy);
  });
}

Result<std::vector<std::byte>> BucketClient::get(const std::string& name, std::size_t bytes_max) {
  PRECIS_TRY(begin_read());
  std::vector<std::byte> value;
  if (!bucket_.get(name, value)) return Status::not_found("there is no object " + name);
  if (value.size() > bytes_max) return Status::corruption(name + " is too long");
  return value;
}

Status BucketClient::get_into(const std::string& name, MutableBytes into) {
  PRECIS_ASSIGN(const auto value, get(name, ~std::size_t{0}));
  if (value.size() != into.size()) return Status::corruption(name + " has another size");
  std::ranges::copy(value, into.begin());
  return {};
}

Status BucketClient::remove(const std::string& name) {
  return change(name, [this, name] { bucket_.remove(name); });
}

Result<ObjectStore::Page> BucketClient::list(const std::string& prefix, const std::string& after) {
  PRECIS_TRY(begin_read());
  return bucket_.list(prefix, after);
}

}  // namespace precis::testing
