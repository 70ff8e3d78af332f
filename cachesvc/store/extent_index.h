// The place of each payload value: in a file, or in memory until it is written to one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/payload_writer.h"

namespace precis {

// The payload of a batch: keys[i] has the value values[i].
struct PayloadBatch {
  std::vector<std::string> keys;
  std::vector<std::shared_ptr<PayloadWriter::Value>> values;
  std::uint64_t size_bytes = 0;  // of values
};

// Thread-safe; does no I/O while holding its lock.
class ExtentIndex {
 public:
  using Map = std::map<std::string, Extent, std::less<>>;
  // `files` outlives it.
  ExtentIndex(const ExtentFiles& files, Map extents)
      : files_(files), extents_(std::move(extents)) {}

  struct Found {
    std::optional<ExtentFiles::Pin> pin;  // in a file; taken before the value can be moved
    SharedBytes memory;                   // otherwise
    std::uint64_t size = 0;
  };
  Result<Found> find(const std::string& key) const {
    return find(key, ExtentFiles::Pinning::kRead);
  }
  // Like find(), but a pin in the result may be held for a long time.
  Result<Found> find_to_keep(const std::string& key) const {
    return find(key, ExtentFiles::Pinning::kKeep);
  }
  std::set<std::string> keys() const;

  // Adds values of a deferred change. find() returns them, from memory or from where they were
  // written, instead of stored values under the same keys, until they are replaced or forgotten.
  void expect(const PayloadBatch& batch);
  void forget(const PayloadBatch& batch);

  // The batch's written values now have rows, and the `deleted` keys have none. Returns the
  // replaced and deleted extents.
  std::vector<Extent> replace(const PayloadBatch& batch, const std::vector<std::string>& deleted);

  std::vector<std::pair<std::string, Extent>> in_file(std::uint32_t number) const;
  bool is_at(const std::string& key, const Extent& place) const;
  void move(const std::string& key, const Extent& to);

 private:
  Result<Found> find(const std::string& key, ExtentFiles::Pinning pinning) const;

  const ExtentFiles& files_;
  mutable std::shared_mutex mutex_;
  // Guarded by mutex_.
  Map extents_;
  std::map<std::string, std::shared_ptr<PayloadWriter::Value>, std::less<>> expected_;
};

}  // namespace precis
