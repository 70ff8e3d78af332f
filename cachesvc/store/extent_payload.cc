// Payload in append-only files. Values are written by one thread in the order of arrival. A file is
// removed, and a range punched, only when no crash can bring back a row that names a value there.
#include <algorithm>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "cachesvc/store/extent_files.h"
#include "cachesvc/store/extent_store.h"
#include "cachesvc/store/payload_writer.h"

namespace precis {
namespace {

// The live share below which values are moved if space is short and the file system punches no
// holes.
constexpr double kTightLiveShare = 0.95;
// Dead bytes that may stay in files: the live bytes / kDeadShare, but at least kDeadBytes. A round
// of punching syncs payload and rows, so it waits until there are more.
constexpr std::uint64_t kDeadShare = 128, kDeadBytes = 256u << 10;

// `ended`, if set, is called after the pin has ended.
class PinnedExtent final : public PinnedValue {
 public:
  PinnedExtent(ExtentPin pin, PayloadOwner* ended) : pin_(std::move(pin)), ended_(ended) {}
  ~PinnedExtent() override {
    pin_.reset();
    if (ended_) ended_->freed();
  }
  PinnedExtent(const PinnedExtent&) = delete;
  PinnedExtent& operator=(const PinnedExtent&) = delete;

  Status read_into(MutableBytes into) const override {
    if (into.size() == pin_->size()) return pin_->read(into);
    return Status::corruption("payload: " + std::to_string(pin_->size()) + " B are stored, " +
                              std::to_string(into.size()) + " B expected");
  }
  Result<std::vector<std::byte>> read() const override {
    PRECIS_ASSIGN(const FileBlocks value, pin_->read());
    return std::vector<std::byte>(value.bytes().begin(), value.bytes().end());
  }

 private:
  std::optional<ExtentPin> pin_;
  PayloadOwner* const ended_;
};

class ExtentHold final : public PayloadHold {
 public:
  // The files are held already.
  ExtentHold(HeldFiles& files, PayloadOwner& owner) : files_(files), owner_(owner) {}
  ~ExtentHold() override {
    files_.release_all();
    owner_.freed();
  }
  ExtentHold(const ExtentHold&) = delete;
  ExtentHold& operator=(const ExtentHold&) = delete;

  void release(std::uint32_t file) override {
    files_.release(file);
    owner_.freed();
  }
  Status check() const override { return files_.check(); }

 private:
  HeldFiles& files_;
  PayloadOwner& owner_;
};

class ExtentPayload final : public PayloadStore {
 public:
  ExtentPayload(std::unique_ptr<ExtentFiles> files, double live_share,
                std::shared_ptr<SpaceGuard> guard)
      : live_share_(live_share),
        guard_(std::move(guard)),
        files_(std::move(files)),
        writer_(*files_, [this] { owner_->freed(); }) {}

  void attach(PayloadOwner& owner) override { owner_ = &owner; }

  std::shared_ptr<StagedValue> stage(SharedBytes value, bool makes_room) override {
    return writer_.add(std::move(value), makes_room ? WriteUse::kMakeRoom : WriteUse::kPayload);
  }
  void then(std::function<void()> fn, std::weak_ptr<const void> fn_owner) override {
    writer_.then(std::move(fn), std::move(fn_owner));
  }
  void settle() override {
    const auto reached = std::make_shared<std::promise<void>>();
    writer_.then([reached = reached.get()] { reached->set_value(); }, reached);
    reached->get_future().wait();
  }
  Status sync() override { return files_->sync(); }

  std::unique_ptr<const PinnedValue> pin(const Extent& place, Pinning pinning) const override {
    return std::make_unique<PinnedExtent>(files_->pin(place, pinning),
                                          pinning == Pinning::kKeep ? owner_ : nullptr);
  }
  std::unique_ptr<PayloadHold> hold() override {
    if (!files_->held().hold(files_->live_files())) return nullptr;
    return std::make_unique<ExtentHold>(files_->held(), *owner_);
  }
  void free(std::span<const Extent> places) override {
    for (const Extent& place : places) files_->free(place);
  }

  bool reclaim(bool tight, const std::stop_token& stop) override {
    if (punches_ && (tight || much_is_dead())) punch();
    // Puts need the space more than the holder does.
    if (tight && much_is_dead() && files_->held().end()) return true;
    if (tight && punches_) return false;
    // Without holes, values are moved. If space is short, they are moved from nearly full files
    // too.
    return empty_sparsest(tight ? kTightLiveShare : live_share_, stop);
  }

  PayloadStats stats() const override {
    const ExtentFiles::Stats files = files_->stats();
    return {files.file_bytes, files.live_bytes, files.missing_bytes};
  }
  Status check() override { return files_->check(); }

 private:
  bool much_is_dead() const {
    const ExtentFiles::Stats files = files_->stats();
    return files.file_bytes >
           files.live_bytes + std::max(files.live_bytes / kDeadShare, kDeadBytes);
  }

  // Clears punches_ if the file system turns out not to punch holes: then values must be moved.
  void punch() {
    const std::vector<std::uint32_t> empty = files_->empty_files();
    const std::vector<ExtentFiles::Hole> holes = files_->holes();
    if (empty.empty() && holes.empty()) return;
    if (!harden_freed()) return;
    (void)files_->remove(empty);
    punches_ = files_->punch(holes).code() != StatusCode::kUnsupported;
  }

  // Returns true if no crash can bring back a row that names a freed value. harden_rows() makes
  // rows of live values durable too, so those values are synced first; files_ remembers a failure.
  bool harden_freed() {
    (void)files_->sync();
    return owner_->harden_rows().ok();
  }

  // Empties the sparsest file, then removes all empty files.
  bool empty_sparsest(double live_share, const std::stop_token& stop) {
    const auto number = files_->sparsest(live_share);
    // A failed move may also leave an empty file; removing it is no progress. Removing files that
    // were empty before is: their space may let the next move succeed.
    const bool makes_room = !files_->empty_files().empty();
    const bool moved = !number || move_values(*number, stop).ok();
    const std::vector<std::uint32_t> empty = files_->empty_files();
    if (empty.empty()) return false;
    return harden_freed() && files_->remove(empty).ok() && (moved || makes_room);
  }

  Status move_values(std::uint32_t number, const std::stop_token& stop) {
    PayloadOwner::Named values = owner_->named_in(number);
    if (values.empty()) return {};
    // Rows may be in memory only so far. A move would log such a row without the rest of its batch.
    PRECIS_TRY(files_->sync());
    PRECIS_TRY(owner_->harden_rows());
    for (auto next = values.begin(); next != values.end();) {
      if (stop.stop_requested()) return Status::canceled("the store is closing");
      PRECIS_TRY(move_some(next, values.end()));
    }
    return {};
  }

  // Moves some values from `next` on and advances `next`. The values are durable already, so the
  // copies are synced before a row names the new place.
  Status move_some(PayloadOwner::Named::iterator& next, PayloadOwner::Named::iterator end) {
    constexpr std::uint64_t kMovedBytes = 16u << 20;
    std::vector<FileBlocks> bytes;
    PayloadOwner::Named moved;
    for (std::uint64_t sum = 0; next != end && sum < kMovedBytes; ++next) {
      auto value = files_->pin(next->second).read();
      if (value.status().code() == StatusCode::kCorruption) {  // left for its reader to report
        files_->set_aside(next->second.file);
        continue;
      }
      PRECIS_TRY(value.status());
      sum += whole_blocks(next->second.size);
      moved.push_back(*next);
      bytes.push_back(std::move(*value));
    }
    std::vector<Bytes> values;
    for (const FileBlocks& value : bytes) values.push_back(value.bytes());
    PRECIS_ASSIGN(const std::vector<Extent> places, files_->append(values, WriteUse::kMakeRoom));
    Status status = files_->sync();
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto& [name, from] = moved[i];
      const Status written = status.ok() ? owner_->move(name, from, places[i]) : status;
      files_->free(written.ok() ? from : places[i]);
      if (!written.ok() && written.code() != StatusCode::kNotFound) status = written;
    }
    return status;
  }

  const double live_share_;
  const std::shared_ptr<SpaceGuard> guard_;  // may be null; destroyed after files_
  const std::unique_ptr<ExtentFiles> files_;
  PayloadOwner* owner_ = nullptr;  // set by attach()
  bool punches_ = true;            // used by reclaim() only: false once punching was refused
  PayloadWriter writer_;           // last: it uses all of the above
};

}  // namespace

Result<std::unique_ptr<PayloadStore>> open_extent_payload(std::unique_ptr<Folder> folder,
                                                          std::span<const Extent> live,
                                                          const ExtentStoreOptions& options,
                                                          std::shared_ptr<SpaceGuard> guard) {
  PRECIS_ASSIGN(std::unique_ptr<ExtentFiles> files,
                ExtentFiles::open(std::move(folder), live, options.file_bytes, guard.get()));
  return std::unique_ptr<PayloadStore>(
      std::make_unique<ExtentPayload>(std::move(files), options.live_share, std::move(guard)));
}

}  // namespace precis
