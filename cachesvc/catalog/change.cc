#include "cachesvc/catalog/change.h"

#include <algorithm>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"

namespace precis {

void Change::put(Table table, std::string key, std::vector<std::byte> value) {
  values_.push_back(std::move(value));
  put_borrowed(table, std::move(key), values_.back());
}

void Change::put_borrowed(Table table, std::string key, Bytes value,
                          std::shared_ptr<StagedValue> staged) {
  batch_.puts.push_back({table, std::move(key), value, std::move(staged)});
}

void Change::erase(Table table, std::string key) {
  batch_.deletes.push_back({table, std::move(key)});
}

bool Change::puts(Table table, const std::string& key) const {
  return std::any_of(batch_.puts.begin(), batch_.puts.end(), [&](const StoreBatch::Put& put) {
    return put.table == table && put.key == key;
  });
}

void Change::is_of(const SegmentId& segment, const SegmentId& rests_on) {
  if (!segment.is_null()) batch_.name = segment_key(segment);
  if (!rests_on.is_null()) batch_.rests_on = segment_key(rests_on);
}

}  // namespace precis
