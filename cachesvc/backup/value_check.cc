#include "cachesvc/backup/value_check.h"

#include <algorithm>
#include <utility>

#include "cachesvc/catalog/catalog_keys.h"
#include "cachesvc/pipeline/cut.h"
#include "precis/block_digest.h"

namespace precis {
namespace {

constexpr std::size_t kIdBytes = sizeof(SegmentId);

// A payload key is the id and the layer, u32 big endian.
bool is_payload_key(std::string_view key) { return key.size() == kIdBytes + 4; }

SegmentId id_of(std::string_view key) {
  SegmentId id;
  std::copy_n(key.begin(), kIdBytes, id.bytes.begin());
  return id;
}

std::uint32_t layer_of(std::string_view key) {
  std::uint32_t layer = 0;
  for (const char byte : key.substr(kIdBytes)) {
    layer = layer << 8 | static_cast<unsigned char>(byte);
  }
  return layer;
}

}  // namespace

Result<ValueCheck> ValueCheck::open(RowSnapshot& rows) {
  ValueCheck checks(rows);
  const auto add = [&](Bytes value) -> Status {
    const auto row = decode_stored_projection(value);
    if (!row.ok()) return {};  // then its values have no row
    for (const bool is_gram : {false, true}) {
      const SegmentId id = projection_id(row->tenant, row->model, is_gram);
      checks.projections_[payload_key(id, row->layer)] = is_gram ? row->grams : row->weights;
    }
    return {};
  };
  PRECIS_TRY(rows.scan(Table::kProjections,
                       [&](std::string_view, Bytes value) -> Status { return add(value); }));
  PRECIS_TRY(rows.scan(Table::kMeta, [&](std::string_view key, Bytes value) -> Status {
    return is_shared_projection_key(key) ? add(value) : Status();
  }));
  return checks;
}

Status ValueCheck::check(const std::string& key, Bytes value) {
  if (!is_payload_key(key)) return Status::corruption("a value has a key of another form");
  const auto projection = projections_.find(key);
  if (projection == projections_.end()) return check_segment(key, value);
  if (sha256(value) == projection->second) return {};
  return Status::corruption("its bytes have another SHA-256 than its row says");
}

Status ValueCheck::check_segment(const std::string& key, Bytes value) {
  if (std::string id = key.substr(0, kIdBytes); id != read_) {
    read_.clear();
    const auto stored = rows_->get(Table::kSegments, id);
    if (stored.status().code() == StatusCode::kNotFound) {
      return Status::corruption("its segment has no row");
    }
    PRECIS_TRY(stored.status());
    PRECIS_ASSIGN(row_, decode_segment_row(*stored));
    read_ = std::move(id);
  }
  const std::uint32_t layer = layer_of(key);
  if (layer >= row_.plan.num_layers) return Status::corruption("its segment has no such layer");
  return check_records(value, row_, layer);
}

std::string ValueCheck::name_of(const std::string& key) const {
  if (!is_payload_key(key)) return "a value of an unknown kind";
  const bool is_projection = projections_.contains(key);
  return (is_projection ? "output projection " : "segment ") + id_of(key).hex() + ", layer " +
         std::to_string(layer_of(key));
}

std::string ValueCheck::mark_of(const std::string& key) const {
  const bool is_segment = is_payload_key(key) && !projections_.contains(key);
  return is_segment ? quarantine_key(id_of(key)) : std::string();
}

}  // namespace precis
