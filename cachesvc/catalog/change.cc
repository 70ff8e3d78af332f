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

void Change::share(const std::optional<std::uint32_t>& shard, Table table, std::string key,
                   std::optional<Bytes> value) {
  if (shard) batch_.shared_rows.push_back({*shard, table, std::move(key), value});
}

void Change::add_object(const SegmentRow& row, std::uint32_t layer) {
  if (!row.shard) return;
  batch_.added_objects.push_back(
      {*row.shard, payload_key(row.id, layer), object_name(row, layer), row.layer_bytes[layer]});
}

void Change::put_segment_here(const SegmentRow& row) {
  put(Table::kSegments, segment_key(row.id), encode(row));
}

void Change::put_segment(const SegmentRow& row) {
  put_segment_here(row);
  share(row.shard, Table::kSegments, segment_key(row.id), values_.back());
}

void Change::put_layer(const SegmentRow& row, std::uint32_t layer, Bytes records,
                       std::shared_ptr<StagedValue> staged) {
  put_borrowed(Table::kPayload, payload_key(row.id, layer), records, std::move(staged));
  add_object(row, layer);
}

void Change::share_segment(const SegmentRow& row) {
  values_.push_back(encode(row));
  share(row.shard, Table::kSegments, segment_key(row.id), values_.back());
  for (std::uint32_t l = 0; l < row.layer_bytes.size(); ++l) add_object(row, l);
}

void Change::erase_segment_here(const SegmentRow& row) {
  erase(Table::kSegments, segment_key(row.id));
  for (std::uint32_t l = 0; l < row.layer_bytes.size(); ++l) {
    erase(Table::kPayload, payload_key(row.id, l));
  }
}

void Change::erase_segment(const SegmentRow& row) {
  erase_segment_here(row);
  share(row.shard, Table::kSegments, segment_key(row.id), std::nullopt);
  remove_objects_of(row);
}

// The new layers have other names, since names tell versions apart.
void Change::remove_objects_of(const SegmentRow& replaced) {
  for (std::uint32_t l = 0; replaced.shard && l < replaced.layer_bytes.size(); ++l) {
    batch_.removed_objects.push_back(
        {*replaced.shard, {}, object_name(replaced, l), replaced.layer_bytes[l]});
  }
}

void Change::put_session(std::string_view tenant, const msg::SessionRow& row) {
  std::string key = session_key(tenant, row.name);
  put(Table::kSessions, key, encode(StoredSession{std::string(tenant), row}));
  share(row.shard, Table::kSessions, std::move(key), values_.back());
}

void Change::erase_session(std::string_view tenant, const msg::SessionRow& row) {
  std::string key = session_key(tenant, row.name);
  erase(Table::kSessions, key);
  share(row.shard, Table::kSessions, std::move(key), std::nullopt);
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
