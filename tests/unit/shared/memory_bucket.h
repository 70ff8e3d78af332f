// An object store in memory, whose clients can have the faults of a network.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cachesvc/shared/object_store.h"

namespace precis::testing {

// Thread-safe, and lives longer than its clients.
class MemoryBucket {
 public:
  explicit MemoryBucket(std::size_t page = 1000) : page_(page) {}
  bool create(const std::string& name, Bytes value);
  void put(const std::string& name, Bytes value);
  bool get(const std::string& name, std::vector<std::byte>& value) const;
  void remove(const std::string& name);
  ObjectStore::Page list(const std::string& prefix, const std::string& after) const;
  std::size_t objects() const;
  struct Requests {
    std::size_t lists = 0, gets = 0;
  };
  Requests requests() const;  // so far, of all clients
  // Whether the object was removed and not written again.
  bool was_removed(const std::string& name) const;

 private:
  const std::size_t page_;  // the most names of one list
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, std::vector<std::byte>> objects_;
  std::set<std::string> removed_;
  mutable Requests requests_;
};

class BucketClient final : public ObjectStore {
 public:
  // kLate: the change is given to `late`, which makes it at any time.
  enum class Fault { kNone, kRefused, kAnswerLost, kLate };
  struct Faults {
    std::function<Fault()> next;  // called before each call; may let other clients run
    std::function<void(const std::string& name, std::function<void()>)> late;
  };
  explicit BucketClient(MemoryBucket& bucket) : bucket_(bucket) {}
  BucketClient(MemoryBucket& bucket, Faults faults) : bucket_(bucket), faults_(std::move(faults)) {}

  Result<bool> create(const std::string& name, Bytes value) override;
  Status put(const std::string& name, Bytes value) override;
  Result<std::vector<std::byte>> get(const std::string& name, std::size_t bytes_max) override;
  Status get_into(const std::string& name, MutableBytes into) override;
  Status remove(const std::string& name) override;
  Result<Page> list(const std::string& prefix, const std::string& after) override;

 private:
  Status change(const std::string& name, const std::function<void()>& make);
  Status begin_read() const;

  MemoryBucket& bucket_;
  const Faults faults_;
};

}  // namespace precis::testing
