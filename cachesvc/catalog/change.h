// One change of the store, as the catalog composes it. Private to this folder.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/store/store.h"
#include "precis/catalog_row.h"

namespace precis {

// A batch that owns the bytes of its rows and borrows payload.
class Change {
 public:
  void put(Table table, std::string key, std::vector<std::byte> value);
  void put_borrowed(Table table, std::string key, Bytes value,
                    std::shared_ptr<StagedValue> staged = nullptr);
  void erase(Table table, std::string key);

  // Here and in the storage that nodes share, if they do: a segment's row, one of its layers, or
  // both; and a session.
  void put_segment(const SegmentRow& row);
  void put_layer(const SegmentRow& row, std::uint32_t layer, Bytes records,
                 std::shared_ptr<StagedValue> staged = nullptr);
  void erase_segment(const SegmentRow& row);
  void put_session(std::string_view tenant, const msg::SessionRow& row);
  void erase_session(std::string_view tenant, const msg::SessionRow& row);
  // Here alone.
  void put_segment_here(const SegmentRow& row);
  void erase_segment_here(const SegmentRow& row);
  // There alone: a segment that is stored here, and the layers of a replaced one.
  void share_segment(const SegmentRow& row);
  void remove_objects_of(const SegmentRow& replaced);

  bool puts(Table table, const std::string& key) const;
  void is_of(const SegmentId& segment, const SegmentId& rests_on);  // null: none
  void makes_room() { batch_.makes_room = true; }                   // see StoreBatch
  const StoreBatch& batch() const { return batch_; }

 private:
  void share(const std::optional<std::uint32_t>& shard, Table table, std::string key,
             std::optional<Bytes> value);
  void add_object(const SegmentRow& row, std::uint32_t layer);

  StoreBatch batch_;
  std::deque<std::vector<std::byte>> values_;  // a deque keeps its elements in place
};

}  // namespace precis
