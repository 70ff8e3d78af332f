// One change of the store, as the catalog composes it. Private to this folder.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/store/store.h"

namespace precis {

// A batch that owns the bytes of its rows and borrows payload.
class Change {
 public:
  void put(Table table, std::string key, std::vector<std::byte> value);
  void put_borrowed(Table table, std::string key, Bytes value,
                    std::shared_ptr<StagedValue> staged = nullptr);
  void erase(Table table, std::string key);
  bool puts(Table table, const std::string& key) const;
  void is_of(const SegmentId& segment, const SegmentId& rests_on);  // null: none
  void makes_room() { batch_.makes_room = true; }                   // see StoreBatch
  const StoreBatch& batch() const { return batch_; }

 private:
  StoreBatch batch_;
  std::deque<std::vector<std::byte>> values_;  // a deque keeps its elements in place
};

}  // namespace precis
