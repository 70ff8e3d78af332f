#include "cachesvc/store/payload_writer.h"

#include <pthread.h>

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

namespace precis {
namespace {

// Values are written together up to this size, which is enough for the disk's full speed.
constexpr std::uint64_t kBatchBytes = 8u << 20;
constexpr std::size_t kSweepItemsMin = 1024;

}  // namespace

// ---- a value

PayloadWriter::Value::~Value() {
  if (kept_ || !written_ || !written_->ok()) return;
  files_.free(**written_);
  (*freed_)();
}

Status PayloadWriter::Value::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return written_.has_value(); });
  return written_->status();
}

bool PayloadWriter::Value::over() const {
  const std::lock_guard lock(mutex_);
  return written_.has_value();
}

bool PayloadWriter::Value::has_failed() const {
  const std::lock_guard lock(mutex_);
  return written_ && !written_->ok();
}

std::optional<SharedBytes> PayloadWriter::Value::unwritten() const {
  const std::lock_guard lock(mutex_);
  return written_ && written_->ok() ? std::nullopt : std::optional(value_);
}

Extent PayloadWriter::Value::extent() const {
  const std::lock_guard lock(mutex_);
  return **written_;
}

void PayloadWriter::Value::keep() {
  const std::lock_guard lock(mutex_);
  kept_ = true;
}

void PayloadWriter::Value::begin() {
  const std::lock_guard lock(mutex_);
  written_.reset();
}

void PayloadWriter::Value::end(Result<Extent> written) {
  SharedBytes released;  // destroyed after the lock is released: its destructor may run any code
  const std::lock_guard lock(mutex_);
  if (written.ok()) released = std::exchange(value_, {});
  written_ = std::move(written);
  ended_.notify_all();
}

// ---- the writer

PayloadWriter::PayloadWriter(ExtentFiles& files, std::function<void()> freed)
    : files_(files),
      freed_(std::make_shared<const std::function<void()>>(std::move(freed))),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

PayloadWriter::~PayloadWriter() = default;

std::shared_ptr<PayloadWriter::Value> PayloadWriter::add(SharedBytes value, WriteUse use) {
  // Shared by the caller that names it, by readers, and by the writer while it writes.
  auto added = std::make_shared<Value>(files_, freed_, std::move(value), use);
  push({added, nullptr, {}});
  return added;
}

void PayloadWriter::add_again(const std::shared_ptr<Value>& value) {
  value->begin();
  push({value, nullptr, {}});
}

void PayloadWriter::then(std::function<void()> fn, std::weak_ptr<const void> owner) {
  push({{}, std::move(fn), std::move(owner)});
}

void PayloadWriter::wait_for_all() {
  const auto reached = std::make_shared<std::promise<void>>();
  then([reached = reached.get()] { reached->set_value(); }, reached);
  reached->get_future().wait();
}

void PayloadWriter::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
    if (queue_.size() >= sweep_at_) sweep();
  }
  wanted_.notify_one();
}

// Without this, dead items would stay while the disk stalls, each with the memory of its value. At
// most half of a long queue is dead.
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
        if (!values.empty() && value->use_ != values.front()->use_) break;
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
        files_.append(bytes, values.empty() ? WriteUse::kPayload : values.front()->use_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i]->end(written.ok() ? Result<Extent>((*written)[i]) : written.status());
    }
    values.clear();  // before the lock: it may destroy some values
    item = {};
    lock.lock();
  }
}

}  // namespace precis
