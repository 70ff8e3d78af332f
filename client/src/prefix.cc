// get: plan -> memory -> request; get_state.cc handles the replies.
#include "client/src/prefix.h"

#include <chrono>
#include <string>
#include <utility>

#include "client/src/interrupt.h"
#include "client/src/rows_out.h"

namespace precis {
namespace {

// The node that has a match.
Target holder_of(const LookupMatch& match) {
  if (match.shard) return OwnerOfShard{*match.shard};
  return AnyNode{};
}

// One of the nodes that serve a match and answer, at random; none: the owner, half as often as each
// of the others, because it also answers lookups.
std::optional<std::string> other_of(const LookupMatch& match, const Nodes& nodes,
                                    Runtime& runtime) {
  if (match.also_at.empty() || !match.shard) return std::nullopt;
  const std::size_t chosen = runtime.random() % (2 * match.also_at.size() + 1) / 2;
  if (chosen == match.also_at.size()) return std::nullopt;
  const std::string& address = match.also_at[chosen].address;
  return nodes.is_silent(address) ? std::nullopt : std::optional(address);
}

}  // namespace

Result<std::shared_ptr<Prefix::Impl>> Prefix::Impl::begin(
    const std::shared_ptr<Nodes>& nodes, const CallOptions& call, const LookupMatch& match,
    const Budget& keep, const GetOptions& options, PageMovers& movers) {
  PRECIS_ASSIGN(GetPlan plan, plan_get(match, keep, options));
  PRECIS_TRY(check_out(plan.model, plan.num_heads, options.out));
  std::optional<PageSink> pages;
  if (options.pages) {
    PRECIS_ASSIGN(pages, PageSink::create(plan.model, plan.num_heads, *options.pages, movers));
  }
  auto impl = std::make_shared<Impl>(nodes, call, holder_of(match), std::move(plan), options.out,
                                     std::move(pages));
  impl->other_ = other_of(match, *nodes, *call.runtime);
  PRECIS_TRY(impl->start());
  return impl;
}

Prefix::Impl::Impl(std::shared_ptr<Nodes> connections, const CallOptions& options, Target target,
                   GetPlan what, std::span<const LayerOut> out, std::optional<PageSink> pages)
    : plan(std::move(what)),
      out_(out.begin(), out.end()),
      pages_(std::move(pages)),
      filled_(plan.model.num_layers),
      target_(std::move(target)),
      nodes_(std::move(connections)),
      retry_(options, "get"),
      handed_(plan.model.num_layers) {}

// Only the newest attempt can still be in progress.
Prefix::Impl::~Impl() {
  if (newest_ && !newest_->state->finished()) newest_->channel->tell(msg::Cancel{newest_->request});
}

Result<Prefix::Impl::AttemptPtr> Prefix::Impl::ask() {
  auto attempt = std::make_shared<Attempt>();
  std::optional<std::string> other;
  {
    const std::lock_guard lock(mutex_);
    other = other_;
  }
  PRECIS_ASSIGN(auto way, nodes_->find(retry_, other ? Target(NodeAt{*other}) : target_));
  attempt->channel = std::move(way.channel);
  Channel& channel = *attempt->channel;
  PRECIS_ASSIGN(auto buffer, channel.buffers().allocate(plan.memory_bytes()));
  if (pages_) buffer->pin(pages_->mover());
  if (retry_.clock().now() > retry_.deadline()) {
    return retry_.too_late("memory to read into");
  }
  ExposedMemory exposed;
  PRECIS_ASSIGN(exposed.exposure,
                channel.expose(buffer->registration(), buffer->bytes().first(plan.capacity_bytes)));
  msg::Get get = get_request(plan, exposed.exposure->region());
  if (other) get.shard = std::get<OwnerOfShard>(target_).shard;
  msg::Request body{0, std::move(get)};

  attempt->state =
      std::make_shared<GetState>(plan, std::move(buffer), channel.verifier(), retry_.clock());
  PendingRequest pending;
  pending.sink = attempt->state;
  pending.patience = Patience::kWhileAlive;
  pending.memory.push_back(std::move(exposed));
  pending.held = attempt->state;
  // If another node does not answer, the owner still has time to.
  pending.deadline = other ? Nodes::attempt_end(retry_, channel) : retry_.deadline();
  attempt->request = channel.start(body, std::move(pending), attempt->state->small());
  const std::lock_guard lock(mutex_);
  attempt->number = ++attempts_;
  return AttemptPtr(std::move(attempt));
}

Status Prefix::Impl::start() {
  for (;;) {
    auto attempt = ask();
    if (attempt.ok()) {
      const std::lock_guard lock(mutex_);
      std::swap(newest_, *attempt);  // the old attempt is destroyed after the lock is released
      return {};
    }
    if (gives_up_other()) continue;
    PRECIS_TRY(retry_.again(nodes_->noted(retry_, attempt.status(), {})));
  }
}

// The owner can serve it if another node could not.
bool Prefix::Impl::gives_up_other() {
  const std::lock_guard lock(mutex_);
  return std::exchange(other_, std::nullopt).has_value();
}

Status Prefix::Impl::again(std::uint64_t failed, const Status& why) {
  if (why.code() == StatusCode::kCanceled) return why;
  {
    std::unique_lock lock(mutex_);
    if (!Interrupt(retry_.clock()).wait(retried_, lock, [this] { return !retrying_; })) {
      return Status::canceled("the wait for a prefix was interrupted");
    }
    if (newest_->number != failed) return {};  // another thread has already retried
    retrying_ = true;
  }
  Status status;
  const Status seen = nodes_->noted(retry_, why, {newest()->channel});
  if (!gives_up_other()) status = retry_.again(seen);
  if (status.ok()) status = start();
  const std::lock_guard lock(mutex_);
  retrying_ = false;
  retried_.notify_all();
  return status;
}

Prefix::Impl::AttemptPtr Prefix::Impl::newest() {
  const std::lock_guard lock(mutex_);
  return newest_;
}

bool Prefix::Impl::handed_out(std::uint32_t layer) {
  const std::lock_guard lock(mutex_);
  return layer < handed_.size() && handed_[layer];
}

Status Prefix::Impl::Attempt::wait_layer(std::uint32_t layer) const {
  return state->wait_layer(layer, [&](const auto& done) { channel->drive_until(done); });
}

Status Prefix::Impl::wait_layer(std::uint32_t layer) {
  while (!handed_out(layer)) {
    AttemptPtr attempt = newest();
    Status status = attempt->wait_layer(layer);
    if (status.ok()) status = wait_handed(*attempt);
    if (status.ok()) {
      PRECIS_TRY(hand_out(attempt, layer, layer + 1).status());
      continue;
    }
    const std::uint64_t failed = attempt->number;
    attempt.reset();  // its buffer is not needed during the retry
    PRECIS_TRY(again(failed, status));
  }
  return fill(layer);
}

Status Prefix::Impl::fill(std::uint32_t layer) {
  if (!fills()) return {};
  const std::lock_guard lock(filling_);
  if (filled_[layer]) return {};
  const auto state = holder(layer);
  std::vector<HeadEntries> heads;
  for (std::uint32_t h = 0; h < plan.num_heads; ++h) {
    heads.push_back(state->head(layer, h));
    if (!out_.empty()) PRECIS_TRY(copy_head(heads.back(), layer, h, out_[layer]));
  }
  if (pages_) PRECIS_TRY(pages_->fill(heads, layer));
  filled_[layer] = true;
  return {};
}

Status Prefix::Impl::wait() {
  // Layer by layer, so that one is copied while the next ones arrive.
  Interrupt interrupt(retry_.clock());  // checked also between layers that have arrived
  for (std::uint32_t l = 0; fills() && l < plan.model.num_layers; ++l) {
    PRECIS_TRY(wait_layer(l));
    if (interrupt.came()) return Status::canceled("the wait for a prefix was interrupted");
  }
  for (;;) {
    AttemptPtr attempt = newest();
    GetState& state = *attempt->state;
    if (state.small()) attempt->channel->drive_until([&] { return state.over(); });
    Status status = state.wait();
    if (status.ok()) {
      PRECIS_ASSIGN(const bool handed, hand_out(attempt, 0, plan.model.num_layers));
      if (handed) return {};
      continue;
    }
    const std::uint64_t failed = attempt->number;
    attempt.reset();
    PRECIS_TRY(again(failed, status));
  }
}

Status Prefix::Impl::wait_handed(const Attempt& attempt) {
  std::vector<std::uint32_t> layers;
  {
    const std::lock_guard lock(mutex_);
    for (std::uint32_t l = 0; l < handed_.size(); ++l) {
      if (handed_[l] && handed_[l].get() != &attempt) layers.push_back(l);
    }
  }
  for (const std::uint32_t layer : layers) PRECIS_TRY(attempt.wait_layer(layer));
  return {};
}

// Layers from earlier attempts were handed out before this attempt became the newest, so
// wait_handed() has waited for all of them.
Result<bool> Prefix::Impl::hand_out(const AttemptPtr& attempt, std::uint32_t begin,
                                    std::uint32_t end) {
  const std::lock_guard lock(mutex_);
  if (attempt != newest_) return false;
  for (std::uint32_t l = 0; l < handed_.size(); ++l) {
    if (!handed_[l] || handed_[l] == attempt) continue;
    if (attempt->state->served(l) != handed_[l]->state->served(l)) {
      return Status::unavailable("get: layer " + std::to_string(l) +
                                 " was put again while it was being read: look the match up again");
    }
  }
  for (std::uint32_t l = begin; l < end; ++l) {
    if (!handed_[l]) handed_[l] = attempt;
  }
  return true;
}

std::shared_ptr<const GetState> Prefix::Impl::holder(std::uint32_t layer) {
  const std::lock_guard lock(mutex_);
  const bool handed = layer < handed_.size() && handed_[layer];
  const AttemptPtr& attempt = handed ? handed_[layer] : newest_;
  return {attempt, attempt->state.get()};
}

std::shared_ptr<const GetState> Prefix::Impl::last() {
  const AttemptPtr attempt = newest();
  return {attempt, attempt->state.get()};
}

Prefix::Prefix(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Prefix::Prefix(Prefix&&) noexcept = default;
Prefix& Prefix::operator=(Prefix&&) noexcept = default;
Prefix::~Prefix() = default;

const ModelSpec& Prefix::model() const { return impl_->plan.model; }
std::uint32_t Prefix::matched_tokens() const { return impl_->plan.links.back().matched_end; }
std::uint32_t Prefix::num_layers() const { return model().num_layers; }
std::uint32_t Prefix::num_heads() const { return impl_->plan.num_heads; }
Status Prefix::wait_layer(std::uint32_t layer) const { return impl_->wait_layer(layer); }
Status Prefix::wait() const { return impl_->wait(); }
HeadEntries Prefix::head(std::uint32_t layer, std::uint32_t head) const {
  return impl_->holder(layer)->head(layer, head);
}
Plan Prefix::plan() const { return impl_->last()->counts(); }
std::uint64_t Prefix::bytes() const { return impl_->last()->bytes(); }
double Prefix::seconds() const { return impl_->last()->seconds(); }

}  // namespace precis
