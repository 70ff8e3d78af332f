// The interface of payload: large values, each at a place that the store chooses. A row names the
// place (row_store.h). A value that no row names is garbage: the owner says which values are live
// when it opens the store, and frees others later. joined_store.h joins rows and payload.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// Bytes, and an owner that keeps them in memory.
struct SharedBytes {
  Bytes bytes;
  std::shared_ptr<const void> owner;
};

// The place of a value. `file` is the number of a file, or of another container of values.
struct Extent {
  std::uint32_t file = 0;
  std::uint64_t offset = 0, size = 0;  // B
  friend bool operator==(const Extent&, const Extent&) = default;
};

// A value whose write was started. Its destruction frees the value's space unless keep() was
// called. Must not outlive the store. Thread-safe.
class StagedValue {
 public:
  virtual ~StagedValue() = default;
  // [blocking] Waits until the bytes are written; an error says why they could not be.
  virtual Status wait() = 0;
  // The result of wait(), or none while the bytes are being written.
  virtual std::optional<Status> ended() const = 0;
  bool over() const { return ended().has_value(); }
  bool has_failed() const { return !ended().value_or(Status()).ok(); }
  // Starts the write of a failed value again.
  virtual void retry() = 0;
  // Its bytes in memory, unless they are already written.
  virtual std::optional<SharedBytes> unwritten() const = 0;
  virtual std::uint64_t size_bytes() const = 0;
  // Requires that the value is written.
  virtual Extent place() const = 0;
  // Call it when a row names the place. From then on only PayloadStore::free() frees the space.
  virtual void keep() = 0;
};

// Keeps a value readable, even after it was freed. Must not outlive the store.
class PinnedValue {
 public:
  virtual ~PinnedValue() = default;
  // [blocking] kCorruption if the value is not there, or if `into` has another size, which is then
  // left alone.
  virtual Status read_into(MutableBytes into) const = 0;
  // [blocking] Allocates memory only once it is known that the value is there, because a damaged
  // row may name any size.
  virtual Result<std::vector<std::byte>> read() const = 0;
};

// The owner of the rows that name the values. Thread-safe.
class PayloadOwner {
 public:
  virtual ~PayloadOwner() = default;
  // Called on any thread when there may be space to reclaim.
  virtual void freed() = 0;
  // [blocking] After OK, no crash brings back a row that named a value freed before.
  virtual Status harden_rows() = 0;
  // Names and places of the values in a file that rows name.
  using Named = std::vector<std::pair<std::string, Extent>>;
  virtual Named named_in(std::uint32_t file) = 0;
  // [blocking] Changes the row `name` from the place `from` to `to`, a durable copy of the value.
  // kNotFound if the row no longer names `from`.
  virtual Status move(const std::string& name, const Extent& from, const Extent& to) = 0;
};

struct PayloadStats {
  std::uint64_t disk_bytes = 0;     // files of the store, without punched ranges
  std::uint64_t live_bytes = 0;     // staged values, and values that were not freed
  std::uint64_t missing_bytes = 0;  // values that were not there at opening
};

// Holds the files of a payload store: no value in them is lost, even if it is freed or moved. Must
// not outlive the store. Thread-safe.
class PayloadHold {
 public:
  virtual ~PayloadHold() = default;
  // Ends the hold of one file.
  virtual void release(std::uint32_t file) = 0;
  // kOutOfSpace if the hold has ended because the disk needed its space. After OK, all values that
  // were read before had the held bytes.
  virtual Status check() const = 0;
};

// Thread-safe. Calls block unless they say otherwise.
class PayloadStore {
 public:
  virtual ~PayloadStore() = default;
  // Called once, before all other functions. `owner` outlives all values and pins.
  virtual void attach(PayloadOwner& owner) = 0;
  // Starts to write a value. Never blocks. `makes_room`: see RowBatch.
  virtual std::shared_ptr<StagedValue> stage(SharedBytes value, bool makes_room = false) = 0;
  // Runs `fn` on the store's thread once all values staged before are written or failed; skips `fn`
  // if `fn_owner` is gone by then. Never blocks.
  virtual void then(std::function<void()> fn, std::weak_ptr<const void> fn_owner) = 0;
  // [blocking] Returns once all values staged before are written or failed, and all functions
  // passed to then() before have run.
  virtual void settle() = 0;
  // After OK, everything written before survives a crash of the machine. A failure is reported as
  // long as values that it may have lost are live.
  virtual Status sync() = 0;
  // Does no I/O, so callers may hold locks. kRead is for short reads. kKeep is for long-lived pins,
  // which may keep space from being reclaimed; the owner is told when such a pin ends.
  enum class Pinning : std::uint8_t { kRead, kKeep };
  virtual std::unique_ptr<const PinnedValue> pin(const Extent& place, Pinning pinning) const = 0;
  // Holds all files with live values. Does no I/O. Null while there is another hold.
  virtual std::unique_ptr<PayloadHold> hold() = 0;
  // Frees values that no row names any more. Does no I/O.
  virtual void free(std::span<const Extent> places) = 0;
  // Does a part of the work of returning space to the disk, and returns whether there is more.
  // `tight`: the disk has little space left, so the store may move more bytes for each byte that it
  // frees.
  virtual bool reclaim(bool tight, const std::stop_token& stop) = 0;
  virtual PayloadStats stats() const = 0;
  // kUnavailable if something else deleted files of the open store. Writes then fail.
  virtual Status check() = 0;
};

}  // namespace precis
