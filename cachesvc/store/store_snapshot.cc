#include "cachesvc/store/store_snapshot.h"

#include <algorithm>

#include "cachesvc/store/extent_row.h"

namespace precis {

Result<std::vector<StoreSnapshot::Value>> StoreSnapshot::values() const {
  std::vector<Value> values;
  PRECIS_TRY(rows_->scan(Table::kPayload, [&](std::string_view key, Bytes row) -> Status {
    values.push_back({std::string(key), decode_extent(row).value_or(Extent{})});
    return {};
  }));
  std::ranges::sort(values, {},
                    [](const Value& v) { return std::pair(v.place.file, v.place.offset); });
  return values;
}

Result<std::vector<std::byte>> StoreSnapshot::read(const Value& value) {
  PRECIS_CHECK(held_);
  // Earlier files are not read any more, so that their space comes back soon.
  if (value.place.file != file_) held_->release(std::exchange(file_, value.place.file));
  auto bytes = payload_.pin(value.place, PayloadStore::Pinning::kRead)->read();
  PRECIS_TRY(held_->check());
  return bytes;
}

}  // namespace precis
