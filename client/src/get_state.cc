#include "client/src/get_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "client/src/interrupt.h"
#include "client/src/served_layer.h"

namespace precis {
namespace {

std::vector<std::uint64_t> entries_of(const GetPlan& plan) {
  std::vector<std::uint64_t> entries;
  for (const GetPlan::Link& link : plan.links) entries.push_back(link.served_max);
  return entries;
}

// Exact, without padding.
std::uint64_t bytes_of(const GetPlan& plan, const msg::LayerServed& served) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < served.counts.size(); ++i) {
    const std::size_t link = i / plan.num_heads;
    if (link == plan.forms.size()) break;  // locate_layer() refuses the message
    const auto parts = served_part_bytes(served.counts[i], plan.forms[link]);
    for (const std::size_t part : parts) sum += part;
  }
  return sum;
}

// Exact, without padding; 0 if no link has coded rows.
std::uint64_t decoded_bytes_of(const GetPlan& plan, const msg::LayerServed& served) {
  if (plan.decoded_bytes == 0) return 0;
  std::uint64_t entries = 0;
  for (const std::uint32_t count : served.counts) entries += count;
  return entries * EntryForm::of(plan.model).bytes();
}

}  // namespace

GetState::GetState(GetPlan plan, std::unique_ptr<BufferPool::Buffer> buffer, Executor& verifier,
                   const Clock& clock)
    : plan_(std::move(plan)),
      buffer_(std::move(buffer)),
      verifier_(verifier),
      clock_(clock),
      placed_(plan_.model.num_layers),
      entries_left_(entries_of(plan_)),
      layers_(plan_.model.num_layers) {}

void GetState::on_layer(msg::LayerServed served) {
  // One message too many is looked at, to report it; more are not queued.
  if (heard_ > plan_.model.num_layers) return;
  ++heard_;
  heard_bytes_ += bytes_of(plan_, served) + decoded_bytes_of(plan_, served);
  const std::uint32_t layer = served.layer;
  {
    const std::lock_guard lock(mutex_);
    ++checking_;
    if (layer < layers_.size()) layers_[layer].heard = true;
  }
  if (heard_bytes_ <= kInlineBytesMax) return check(served);
  {
    const std::lock_guard lock(mutex_);
    unchecked_.push_back(std::move(served));
    if (layer < layers_.size() && layers_[layer].waiting > 0) return settled_.notify_all();
    if (is_behind()) over_.notify_all();
  }
  verifier_.post([self = shared_from_this(), layer] {
    if (const auto unchecked = self->take(layer)) self->check(*unchecked);
  });
}

void GetState::on_reply(Result<msg::ReplyBody> reply) {
  // A caller whose deadline has passed does not wait for the unchecked layers.
  if (reply.status().code() == StatusCode::kTimedOut) fail(reply.status());
  {
    const std::lock_guard lock(mutex_);
    reply_ = std::move(reply);
    if (checking_ > 0) return;
  }
  finish();
}

GetState::Unchecked::iterator GetState::find_unchecked(std::uint32_t layer) {
  return std::ranges::find(unchecked_, layer, &msg::LayerServed::layer);
}

std::optional<msg::LayerServed> GetState::take(std::uint32_t layer) {
  const std::lock_guard lock(mutex_);
  const auto found = find_unchecked(layer);
  if (found == unchecked_.end()) return std::nullopt;
  auto served = std::move(*found);
  unchecked_.erase(found);
  return served;
}

// The next unchecked layer is left to the verifying thread; a second one is for any waiting thread.
bool GetState::is_behind() const { return unchecked_.size() > 1; }

msg::LayerServed GetState::take_first() {
  auto served = std::move(unchecked_.front());
  unchecked_.erase(unchecked_.begin());
  return served;
}

void GetState::check(const msg::LayerServed& served) {
  settle(served);
  {
    const std::lock_guard lock(mutex_);
    if (--checking_ > 0 || !reply_) return;
  }
  finish();
}

void GetState::settle(const msg::LayerServed& served) {
  const auto placed = place(served);
  if (!placed.ok()) return fail(placed.status());
  const MutableBytes memory = buffer_->bytes().subspan(served.offset, placed->layout.size_bytes);
  Status status = verify_layer(plan_, served, placed->layout, memory);
  std::vector<HeadEntries> heads;
  if (status.ok()) {
    heads = arrange_layer(plan_, served, placed->layout, memory, placed->decoded);
  }

  const std::lock_guard lock(mutex_);
  Layer& layer = layers_[served.layer];
  if (!layer.settled) {
    layer.settled = true;
    layer.status = std::move(status);
    layer.heads = std::move(heads);
    layer.served = {served.counts, served.tail_checksums};
  }
  bytes_ += bytes_of(plan_, served);
  settled_.notify_all();
}

// Finds the layer's place, which must not contradict another layer or an earlier message of the
// server.
Result<GetState::Placed> GetState::place(const msg::LayerServed& served) {
  if (served.layer >= plan_.model.num_layers) {
    return Status::corruption("the service served layer " + std::to_string(served.layer) +
                              " of a model of " + std::to_string(plan_.model.num_layers));
  }
  const std::lock_guard placing(placing_);
  if (placed_[served.layer]) {
    return Status::corruption("the service served layer " + std::to_string(served.layer) +
                              " a second time");
  }
  PRECIS_ASSIGN(ServedLayout layout,
                locate_layer(plan_, served, entries_left_, plan_.capacity_bytes));
  const std::size_t begin = served.offset, end = begin + layout.size_bytes;
  for (const auto& [used_begin, used_end] : used_) {
    if (begin < used_end && used_begin < end) {
      return Status::corruption("the service served layer " + std::to_string(served.layer) +
                                " to bytes [" + std::to_string(begin) + ", " + std::to_string(end) +
                                ") where another layer lies");
    }
  }
  placed_[served.layer] = true;
  used_.emplace_back(begin, end);
  for (std::size_t i = 0; i < served.counts.size(); ++i) {
    entries_left_[i / plan_.num_heads] -= served.counts[i];
  }
  const std::size_t bytes = decoded_bytes(plan_, layout);
  const std::size_t at =
      align_section(plan_.capacity_bytes) + std::exchange(decoded_, decoded_ + bytes);
  const MutableBytes decoded = bytes > 0 ? buffer_->bytes().subspan(at, bytes) : MutableBytes();
  return Placed{std::move(layout), decoded};
}

void GetState::finish() {
  const Status status = reply_->ok() ? missing() : reply_->status();
  if (!status.ok()) fail(status);
  const std::lock_guard lock(mutex_);
  for (const Layer& layer : layers_) {
    if (outcome_.ok()) outcome_ = layer.status;
  }
  finished_ = true;
  seconds_ = std::chrono::duration<double>(clock_.now() - started_).count();
  over_.notify_all();
}

// Reports what is missing although the server answered "done".
Status GetState::missing() const {
  const std::lock_guard lock(mutex_);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (!layers_[l].settled) {
      return Status::corruption("the service ended the get without layer " + std::to_string(l));
    }
  }
  for (std::size_t link = 0; link < entries_left_.size(); ++link) {
    if (entries_left_[link] != 0 && plan_.is_exact(plan_.links[link])) {
      return Status::corruption("the service served " + std::to_string(entries_left_[link]) +
                                " entries less than the " +
                                std::to_string(plan_.links[link].served_max) + " of segment " +
                                plan_.links[link].segment.hex());
    }
  }
  return {};
}

// Every layer that is not settled fails.
void GetState::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (outcome_.ok()) outcome_ = status;
  for (Layer& layer : layers_) {
    if (layer.settled) continue;
    layer.settled = true;
    layer.status = status;
  }
  settled_.notify_all();
  over_.notify_all();
}

Status GetState::wait_layer(std::uint32_t layer, const Drive& drive) {
  if (layer >= plan_.model.num_layers) {
    return Status::invalid("layer " + std::to_string(layer) + " of a prefix of " +
                           std::to_string(plan_.model.num_layers));
  }
  for (;;) {
    if (const auto served = take(layer)) check(*served);
    std::unique_lock lock(mutex_);
    Layer& awaited = layers_[layer];
    const auto there = [&] { return awaited.settled || find_unchecked(layer) != unchecked_.end(); };
    ++awaited.waiting;
    const auto heard = [&] { return awaited.heard || awaited.settled || reply_.has_value(); };
    if (!heard()) {
      lock.unlock();
      drive([&] {
        const std::lock_guard looking(mutex_);
        return heard();
      });
      lock.lock();
    }
    const bool came = Interrupt(clock_).wait(settled_, lock, there) || there();
    --awaited.waiting;
    if (!came) {
      return Status::canceled("the wait for layer " + std::to_string(layer) + " was interrupted");
    }
    // The layer may have come twice, and each was left to the thread that waits for it.
    if (find_unchecked(layer) != unchecked_.end()) continue;
    if (awaited.settled) return awaited.status;
  }
}

Status GetState::wait() {
  Interrupt interrupt(clock_);
  for (;;) {
    std::optional<msg::LayerServed> served;
    {
      std::unique_lock lock(mutex_);
      const auto over = [&] { return finished_ || !outcome_.ok(); };
      const bool came = interrupt.wait(over_, lock, [&] { return over() || is_behind(); });
      if (over()) return outcome_;
      if (came) served = take_first();
    }
    if (served) check(*served);
    // Interrupts are also checked between layers that have all arrived.
    if (!served || interrupt.came()) {
      return Status::canceled("the wait for a prefix was interrupted");
    }
  }
}

bool GetState::settled(std::uint32_t layer) const {
  const std::lock_guard lock(mutex_);
  return layer >= layers_.size() || layers_[layer].settled;
}

bool GetState::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

bool GetState::over() const {
  const std::lock_guard lock(mutex_);
  return finished_ || !outcome_.ok();
}

GetState::Served GetState::served(std::uint32_t layer) const {
  const std::lock_guard lock(mutex_);
  PRECIS_CHECK(layer < layers_.size() && layers_[layer].settled && layers_[layer].status.ok());
  return layers_[layer].served;
}

HeadEntries GetState::head(std::uint32_t layer, std::uint32_t head) const {
  const std::lock_guard lock(mutex_);
  PRECIS_CHECK(layer < layers_.size() && layers_[layer].settled && layers_[layer].status.ok());
  PRECIS_CHECK(head < layers_[layer].heads.size());
  return layers_[layer].heads[head];
}

Plan GetState::counts() const {
  const std::lock_guard lock(mutex_);
  Plan plan{plan_.model.num_layers, plan_.num_heads, {}};
  plan.counts.resize(std::size_t{plan.num_layers} * plan.num_kv_heads);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (std::size_t h = 0; h < layers_[l].heads.size(); ++h) {
      plan.counts[l * plan.num_kv_heads + h] =
          static_cast<std::uint32_t>(layers_[l].heads[h].positions.size());
    }
  }
  return plan;
}

std::uint64_t GetState::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

double GetState::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

}  // namespace precis
