#include "client/src/get_state.h"

#include <algorithm>
#include <string>

#include "client/src/interrupt.h"
#include "client/src/served_layer.h"

namespace precis {
namespace {

std::vector<std::uint64_t> entries_of(const GetPlan& plan) {
  std::vector<std::uint64_t> entries;
  for (const GetPlan::Link& link : plan.links) entries.push_back(link.entries);
  return entries;
}

// Exact, without padding.
std::uint64_t bytes_of(const GetPlan& plan, const msg::LayerServed& served) {
  const std::size_t row_bytes = plan.model.head_dim * dtype_size_bytes(plan.model.dtype);
  std::uint64_t sum = 0;
  for (const std::uint32_t count : served.counts) {
    for (const std::size_t part : served_part_bytes(count, row_bytes)) sum += part;
  }
  return sum;
}

}  // namespace

GetState::GetState(GetPlan plan, std::unique_ptr<BufferPool::Buffer> buffer, Executor& verifier)
    : plan_(std::move(plan)),
      buffer_(std::move(buffer)),
      verifier_(verifier),
      entries_left_(entries_of(plan_)),
      layers_(plan_.model.num_layers) {}

void GetState::on_layer(msg::LayerServed served) {
  // One too many is looked at, and found out; a flood is not queued.
  if (heard_ > plan_.model.num_layers) return;
  ++heard_;
  heard_bytes_ += bytes_of(plan_, served);
  if (checked_inline()) return check(served);
  verifier_.post([self = shared_from_this(), served = std::move(served)] { self->check(served); });
}

void GetState::on_reply(Result<msg::ReplyBody> reply) {
  if (checked_inline()) return finish(reply);
  verifier_.post([self = shared_from_this(), reply = std::move(reply)] { self->finish(reply); });
}

bool GetState::checked_inline() const { return heard_bytes_ <= kInlineBytesMax; }

void GetState::check(const msg::LayerServed& served) {
  const auto layout = place(served);
  if (!layout.ok()) return fail(layout.status());
  const MutableBytes memory = buffer_->bytes().subspan(served.offset, layout->size_bytes);
  Status status = verify_layer(plan_, served, *layout, memory);
  std::vector<HeadEntries> heads;
  if (status.ok()) heads = arrange_layer(plan_, served, *layout, memory);

  const std::lock_guard lock(mutex_);
  Layer& layer = layers_[served.layer];
  if (!layer.settled) {
    layer = {true, std::move(status), std::move(heads), {served.counts, served.tail_checksums}};
  }
  bytes_ += bytes_of(plan_, served);
  settled_.notify_all();
}

// Where the layer lies, which no other layer and no earlier word of the server may contradict.
Result<ServedLayout> GetState::place(const msg::LayerServed& served) {
  if (served.layer >= plan_.model.num_layers) {
    return Status::corruption("the service served layer " + std::to_string(served.layer) +
                              " of a model of " + std::to_string(plan_.model.num_layers));
  }
  {
    const std::lock_guard lock(mutex_);
    if (layers_[served.layer].settled) {
      return Status::corruption("the service served layer " + std::to_string(served.layer) +
                                " a second time");
    }
  }
  PRECIS_ASSIGN(ServedLayout layout,
                locate_layer(plan_, served, entries_left_, buffer_->bytes().size()));
  const std::size_t begin = served.offset, end = begin + layout.size_bytes;
  for (const auto& [used_begin, used_end] : used_) {
    if (begin < used_end && used_begin < end) {
      return Status::corruption("the service served layer " + std::to_string(served.layer) +
                                " to bytes [" + std::to_string(begin) + ", " + std::to_string(end) +
                                ") where another layer lies");
    }
  }
  used_.emplace_back(begin, end);
  for (std::size_t i = 0; i < served.counts.size(); ++i) {
    entries_left_[i / plan_.model.num_kv_heads] -= served.counts[i];
  }
  return layout;
}

void GetState::finish(const Result<msg::ReplyBody>& reply) {
  const Status status = reply.ok() ? missing() : reply.status();
  if (!status.ok()) fail(status);
  const std::lock_guard lock(mutex_);
  for (const Layer& layer : layers_) {
    if (outcome_.ok()) outcome_ = layer.status;
  }
  finished_ = true;
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  over_.notify_all();
}

// What a server that answers "done" still owes.
Status GetState::missing() const {
  const std::lock_guard lock(mutex_);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (!layers_[l].settled) {
      return Status::corruption("the service ended the get without layer " + std::to_string(l));
    }
  }
  for (std::size_t link = 0; link < entries_left_.size(); ++link) {
    if (entries_left_[link] != 0) {
      return Status::corruption("the service served " + std::to_string(entries_left_[link]) +
                                " entries less than the " +
                                std::to_string(plan_.links[link].entries) + " of segment " +
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
    if (!layer.settled) layer = {true, status, {}, {}};
  }
  settled_.notify_all();
  over_.notify_all();
}

Status GetState::wait_layer(std::uint32_t layer) const {
  if (layer >= plan_.model.num_layers) {
    return Status::invalid("layer " + std::to_string(layer) + " of a prefix of " +
                           std::to_string(plan_.model.num_layers));
  }
  std::unique_lock lock(mutex_);
  if (!Interrupt().wait(settled_, lock, [&] { return layers_[layer].settled; })) {
    return Status::canceled("the wait for layer " + std::to_string(layer) + " was interrupted");
  }
  return layers_[layer].status;
}

Status GetState::wait() const {
  std::unique_lock lock(mutex_);
  if (!Interrupt().wait(over_, lock, [&] { return finished_ || !outcome_.ok(); })) {
    return Status::canceled("the wait for a prefix was interrupted");
  }
  return outcome_;
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
  Plan plan{plan_.model.num_layers, plan_.model.num_kv_heads, {}};
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
