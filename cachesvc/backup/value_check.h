// Checks payload values by what their rows say: the records of a segment by their checksums, and an
// output projection by its SHA-256.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "cachesvc/store/row_store.h"
#include "precis/catalog_row.h"

namespace precis {

class ValueCheck {
 public:
  // `rows` outlives it. Reads the rows of the projections.
  static Result<ValueCheck> open(RowSnapshot& rows);
  // kCorruption, naming the segment and the layer. Other errors: the rows could not be read.
  Status check(const std::string& key, Bytes value);
  // The name of the value under this key, for people.
  std::string name_of(const std::string& key) const;
  // The key of the row that takes the segment of this value out of service; empty if the value is
  // not of a segment.
  std::string mark_of(const std::string& key) const;

 private:
  explicit ValueCheck(RowSnapshot& rows) : rows_(&rows) {}
  Status check_segment(const std::string& key, Bytes value);

  RowSnapshot* rows_;
  std::map<std::string, Digest, std::less<>> projections_;  // SHA-256, by payload key
  std::string read_;                                        // the key of row_
  SegmentRow row_;
};

}  // namespace precis
