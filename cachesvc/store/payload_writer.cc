#include "cachesvc/store/payload_writer.h"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace precis {
namespace {

// Values are written together up to this size, which is enough for the disk's full speed.
constexpr std::uint64_t kBatchBytes = 8u << 20;
constexpr std::size_t kSweepItemsMin = 1024;

}  // namespace

// ---- a value

class PayloadWriter::Value final : public StagedValue, public std::enable_shared_from_this<Value> {
 public:
  Value(PayloadWriter& writer, SharedBytes value, WriteUse use)
      : writer_(writer), use_(use), value_(std::move(value)) {}
  ~Value() override {
    if (kept_ || !written_ || !written_->ok()) return;
    writer_.files_.free(**written_);
    writer_.freed_();
  }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;

  Status wait() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return written_.has_value(); });
    return written_->status();
  }
  std::optional<Status> ended() const override {
    const std::lock_guard lock(mutex_);
    return written_ ? std::optional(written_->status()) : std::nullopt;
  }
  void retry() override {
    {
      const std::lock_guard lock(mutex_);
      written_.reset();
    }
    writer_.push({shared_from_this(), nullptr, {}});
  }
  std::optional<SharedBytes> unwritten() const override {
    const std::lock_guard lock(mutex_);
    return written_ && written_->ok() ? std::nullopt : std::optional(value_);
  }
  std::uint64_t size_bytes() const override { return size_bytes_; }
  Extent place() const override {
    const std::lock_guard lock(mutex_);
    return **written_;
  }
  void keep() override {
    const std::lock_guard lock(mutex_);
    kept_ = true;
  }

  WriteUse use() const { return use_; }
  Bytes bytes() const { return value_.bytes; }  // valid until end()
  void end(Result<Extent> written) {
    SharedBytes released;  // destroyed after the lock is released: its destructor may run any code
    const std::lock_guard lock(mutex_);
    if (written.ok()) released = std::exchange(value_, {});
    written_ = std::move(written);
    ended_.notify_all();
  }

 private:
  PayloadWriter& writer_;
  const WriteUse use_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  // Guarded by mutex_. The writer reads `value_` without the lock, because only the writer changes
  // `value_`.
  SharedBytes value_;
  const std::uint64_t size_bytes_ = value_.bytes.size();
  std::optional<Result<Extent>> written_;
  bool kept_ = false;
};

// ---- the writer

PayloadWriter::PayloadWriter(ExtentFiles& files, std::function<void()> freed)
    : files_(files),
      freed_(std::move(freed)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

PayloadWriter::~PayloadWriter() = default;

std::shared_ptr<StagedValue> PayloadWriter::add(SharedBytes value, WriteUse use) {
  // Shared by the caller that names it, by readers, and by the writer while it writes.
  auto added = std::make_shared<Value>(*this, std::move(value), use);
  push({added, nullptr, {}});
  return added;
}

void PayloadWriter::then(std::function<void()> fn, std::weak_ptr<const void> owner) {
  push({{}, std::move(fn), std::move(owner)});
}

void PayloadWriter::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
    if (queue_.size() >= sweep_at_) sweep();
  }
  wanted_.notify_one();
}

// Removes dead items. Otherwise they would stay while the disk stalls, each with the memory of its
// value. About half of a long queue may be dead.
void PayloadWriter::sweep() {
  std::erase_if(queue_, [](const Item& item) { return item.is_dead(); });
  sweep_at_ = std::max(kSweepItemsMin, 2 * queue_.size());
}

void PayloadWriter::run(const std::stop_token& stop) {
  ::pthread_setname_np(::pthread_self(), "payload-writer");
  const std::uint64_t batch_bytes = std::min(kBatchBytes, files_.file_bytes());
  std::unique_lock lock(mutex_);
  while (wanted_.wait(lock, stop, [this] { return !queue_.empty(); })) {
    std::vector<std::shared_ptr<Value>> values;
    std::vector<Bytes> bytes;
    std::uint64_t size_bytes = 0;
    while (!queue_.empty() && !queue_.front().fn && size_bytes < batch_bytes) {
      if (auto value = queue_.front().value.lock()) {
        if (!values.empty() && value->use() != values.front()->use()) break;
        size_bytes += value->size_bytes();
        bytes.push_back(value->bytes());
        values.push_back(std::move(value));
      }
      queue_.pop_front();
    }
    Item item;
    if (values.empty() && !queue_.empty()) {
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    lock.unlock();
    if (const auto owner = item.owner.lock()) item.fn();
    const auto written =
        files_.append(bytes, values.empty() ? WriteUse::kPayload : values.front()->use());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i]->end(written.ok() ? Result<Extent>((*written)[i]) : written.status());
    }
    values.clear();  // before locking, because this may destroy some values
    item = {};
    lock.lock();
  }
}

}  // namespace precis
