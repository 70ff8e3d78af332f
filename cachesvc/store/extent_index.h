// Where each payload value lies: in a file, or in memory while it is on its way to one.
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

// Payload values by key, as a batch has them: keys[i]'s is values[i].
struct PayloadBatch {
  std::vector<std::string> keys;
  std::vector<std::shared_ptr<PayloadWriter::Value>> values;
  std::uint64_t size_bytes = 0;  // of values
};

// Thread-safe; holds its lock for no I/O.
class ExtentIndex {
 public:
  using Map = std::map<std::string, Extent, std::less<>>;
  // `files` outlives it.
  ExtentIndex(const ExtentFiles& files, Map extents)
      : files_(files), extents_(std::move(extents)) {}

  struct Found {
    std::optional<ExtentFiles::Pin> pin;  // in a file, taken before the value can be moved
    SharedBytes memory;                   // else
    std::uint64_t size = 0;
  };
  Result<Found> find(const std::string& key) const {
    return find(key, ExtentFiles::Pinning::kRead);
  }
  // The same, where the pin, if there is one, is held for long.
  Result<Found> find_to_keep(const std::string& key) const {
    return find(key, ExtentFiles::Pinning::kKeep);
  }
  std::set<std::string> keys() const;

  // Values that are read from memory, or where they were written to, until they are replaced or
  // forgotten, whatever lies in files under their keys.
  void expect(const PayloadBatch& batch);
  void forget(const PayloadBatch& batch);

  // Values that are written and that rows mean now, and keys that none means; what lay under those
  // keys.
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
