// The store at one instant: its rows, and the payload values that they name. The store may change
// meanwhile.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/store/payload_store.h"
#include "cachesvc/store/row_store.h"

namespace precis {

// Must not outlive its store. Calls block.
class StoreSnapshot {
 public:
  // Rows and hold are of the same instant.
  StoreSnapshot(std::unique_ptr<RowSnapshot> rows, std::unique_ptr<PayloadHold> held,
                const PayloadStore& payload)
      : rows_(std::move(rows)), held_(std::move(held)), payload_(payload) {}

  RowSnapshot& rows() { return *rows_; }  // in Table::kPayload they are places

  struct Value {
    std::string key;
    Extent place;  // file 0 if its row is unreadable
  };
  // All values, in the order of their places.
  Result<std::vector<Value>> values() const;
  // kCorruption if the bytes are not there. kOutOfSpace if the disk became so short of space that
  // values of this instant were given up. Call it in the order of values().
  Result<std::vector<std::byte>> read(const Value& value);
  // Ends reads of values. Rows can still be read.
  void release_payload() { held_.reset(); }

 private:
  const std::unique_ptr<RowSnapshot> rows_;
  std::unique_ptr<PayloadHold> held_;
  const PayloadStore& payload_;
  std::uint32_t file_ = 0;  // of the value that was read last
};

}  // namespace precis
