// The place of each payload value: in the payload store, or in memory until it is written there.
#pragma once

#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/store/payload_store.h"

namespace precis {

// The payload of a batch: keys[i] has the value values[i].
struct PayloadBatch {
  std::vector<std::string> keys;
  std::vector<std::shared_ptr<StagedValue>> values;
  std::uint64_t size_bytes = 0;  // of values
};

// Thread-safe; does no I/O while holding its lock.
class PayloadIndex {
 public:
  using Map = std::map<std::string, Extent, std::less<>>;
  // `payload` outlives this object. `places`: the places of all values that rows name.
  PayloadIndex(const PayloadStore& payload, Map places)
      : payload_(payload), places_(std::move(places)) {}

  struct Found {
    std::unique_ptr<const PinnedValue> pin;  // taken before the value can be moved
    SharedBytes memory;                      // set if the value is not written yet; then no pin
  };
  using Pinning = PayloadStore::Pinning;
  // kNotFound if absent.
  Result<Found> find(const std::string& key, Pinning pinning = Pinning::kRead) const;

  // Adds values of a deferred change. find() returns them, from memory or from where they were
  // written, instead of stored values under the same keys, until they are replaced or erased.
  void expect(const PayloadBatch& batch);
  void erase(const PayloadBatch& batch);

  // Call it when the batch's written values have rows, and the `deleted` keys have none any more.
  // Returns the places of the replaced and deleted values.
  std::vector<Extent> replace(const PayloadBatch& batch, const std::vector<std::string>& deleted);

  // The bytes of the written values whose keys begin with `prefix`.
  std::uint64_t bytes_of(const std::string& prefix) const;
  PayloadOwner::Named named_in(std::uint32_t file) const;
  bool is_at(const std::string& key, const Extent& place) const;
  void move(const std::string& key, const Extent& to);

 private:
  const PayloadStore& payload_;
  mutable std::shared_mutex mutex_;
  // Guarded by mutex_.
  Map places_;
  std::map<std::string, std::shared_ptr<StagedValue>, std::less<>> expected_;
};

}  // namespace precis
