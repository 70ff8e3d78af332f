// The rows of agreed_rows.h as etcd has them. A row may be larger than etcd takes in a request.
//
//   precis/NAME/agreed               JSON {"format": 1, "complete": true, "by": WRITER, "change":
//   ID};
//                                    it is written with every change, so its revision numbers them.
//                                    It is not complete while the first node writes its own rows.
//   precis-agreed/NAME/rows/KEY      "=" and the value, or "/" and the parts: their ID and how many
//   precis-agreed/NAME/parts/ID/N    a part of a large value
//
// Other programs can write there, so all that is read is checked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/base/runtime.h"
#include "cachesvc/cluster/etcd.h"

namespace precis::cluster {

struct AgreedRow {
  std::string key;                   // any bytes
  std::optional<std::string> value;  // none: there is no such row
};
// Rows that are left out, by their keys, and why.
using LeftOut = std::map<std::string, Status>;

// All calls block, one at a time. Errors as Etcd's.
class AgreedStore {
 public:
  struct Version {
    std::uint64_t etcd = 0;     // the revision of etcd that was read
    std::uint64_t changed = 0;  // the revision of the last change; 0: there was none
    std::string row;            // of that change; no other one has the same
    bool complete = false;
    std::string by;  // the writer
  };
  struct Listed {
    std::uint64_t revision = 0;
    std::string parts;  // the ID of its parts; empty: it has none, or was not read yet
  };
  using Index = std::map<std::string, Listed>;  // by key

  AgreedStore(Etcd& etcd, const std::string& cluster, Runtime& runtime);

  const std::string& writer() const { return writer_; }  // of this object alone
  // kUnsupported if another version of Precis has written it, kCorruption if something else has.
  Result<Version> version();
  // All rows at that version; `before` is an earlier list.
  Result<Index> list(const Version& at, const Index& before);
  // The rows at that version that have changed since a revision; 0: all. It notes their parts in
  // `index`. Rows that are none of Precis are left out.
  Result<std::vector<AgreedRow>> changed(const Version& at, std::uint64_t since, Index& index,
                                         LeftOut& left_out);
  // Writes the rows if the last change is the one of revision `over`, and notes them in `index`.
  // Returns the new last change. kConflict if there is another one; kOutOfSpace for more than
  // kRowsPerChange rows. After another error the change may have been made, or be made later.
  static constexpr std::size_t kRowsPerChange = 100;
  Result<Version> write(std::uint64_t over, const std::vector<AgreedRow>& rows, bool complete,
                        Index& index);

 private:
  Result<std::string> read_value(const std::string& stored, const Version& at, Listed& listed);
  Result<std::string> write_value(const AgreedRow& row, Listed& listed);
  Result<Version> write_rows(const Etcd::Change& change);

  const std::string version_key_, rows_prefix_, parts_prefix_, writer_;
  Etcd& etcd_;
  Runtime& runtime_;
};

}  // namespace precis::cluster
