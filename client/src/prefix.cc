// get: plan -> memory -> request; the rest arrives in get_state.cc.
#include "client/src/prefix.h"

#include <utility>

namespace precis {

Result<std::shared_ptr<Prefix::Impl>> Prefix::Impl::begin(const std::shared_ptr<Link>& link,
                                                          const CallOptions& options,
                                                          const LookupMatch& match,
                                                          const Budget& keep) {
  PRECIS_ASSIGN(GetPlan plan, plan_get(match, keep));
  auto impl = std::make_shared<Impl>(link, options, std::move(plan));
  PRECIS_TRY(impl->start());
  return impl;
}

Prefix::Impl::Impl(std::shared_ptr<Link> way, const CallOptions& options, GetPlan what)
    : plan(std::move(what)), link_(std::move(way)), retry_(options, "get") {}

Prefix::Impl::~Impl() {
  for (const Attempt& attempt : attempts_) {
    if (!attempt.state->finished()) attempt.channel->tell(msg::Cancel{attempt.request});
  }
}

Result<Prefix::Impl::Attempt> Prefix::Impl::ask() {
  Attempt attempt;
  PRECIS_ASSIGN(attempt.channel, link_->channel(retry_));
  Channel& channel = *attempt.channel;
  PRECIS_ASSIGN(auto buffer, channel.buffers().allocate(plan.capacity_bytes));
  ExposedMemory exposed;
  PRECIS_ASSIGN(exposed.exposure, channel.expose(buffer->registration()));
  msg::Request body{0, get_request(plan, exposed.exposure->region())};

  attempt.state = std::make_shared<GetState>(plan, std::move(buffer), channel.verifier());
  PendingRequest pending;
  pending.sink = attempt.state;
  pending.patience = Patience::kWhileAlive;
  pending.memory.push_back(std::move(exposed));
  pending.held = attempt.state;
  pending.deadline = retry_.deadline();
  attempt.request = channel.start(body, std::move(pending));
  return attempt;
}

Status Prefix::Impl::start() {
  for (;;) {
    auto attempt = ask();
    if (attempt.ok()) {
      const std::lock_guard lock(mutex_);
      attempts_.push_back(std::move(*attempt));
      return {};
    }
    PRECIS_TRY(retry_.again(attempt.status()));
  }
}

Status Prefix::Impl::again(std::size_t failed, const Status& why) {
  const std::lock_guard lock(retrying_);
  if (newest().first != failed) return {};  // another thread has seen to it
  PRECIS_TRY(retry_.again(why));
  return start();
}

std::pair<std::size_t, std::shared_ptr<GetState>> Prefix::Impl::newest() {
  const std::lock_guard lock(mutex_);
  return {attempts_.size() - 1, attempts_.back().state};
}

Status Prefix::Impl::wait_layer(std::uint32_t layer) {
  for (;;) {
    const auto [number, state] = newest();
    Status status = state->wait_layer(layer);
    if (status.ok() || holder(layer).arrived(layer)) return {};
    PRECIS_TRY(again(number, status));
  }
}

Status Prefix::Impl::wait() {
  for (;;) {
    const auto [number, state] = newest();
    Status status = state->wait();
    if (status.ok()) return {};
    PRECIS_TRY(again(number, status));
  }
}

const GetState& Prefix::Impl::holder(std::uint32_t layer) {
  const std::lock_guard lock(mutex_);
  for (const Attempt& attempt : attempts_) {
    if (attempt.state->arrived(layer)) return *attempt.state;
  }
  return *attempts_.back().state;
}

const GetState& Prefix::Impl::last() { return *newest().second; }

Prefix::Prefix(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Prefix::Prefix(Prefix&&) noexcept = default;
Prefix& Prefix::operator=(Prefix&&) noexcept = default;
Prefix::~Prefix() = default;

const ModelSpec& Prefix::model() const { return impl_->plan.model; }
std::uint32_t Prefix::matched_tokens() const { return impl_->plan.links.back().matched_end; }
std::uint32_t Prefix::num_layers() const { return model().num_layers; }
Status Prefix::wait_layer(std::uint32_t layer) const { return impl_->wait_layer(layer); }
Status Prefix::wait() const { return impl_->wait(); }
HeadEntries Prefix::head(std::uint32_t layer, std::uint32_t head) const {
  return impl_->holder(layer).head(layer, head);
}
Plan Prefix::plan() const { return impl_->last().counts(); }
std::uint64_t Prefix::bytes() const { return impl_->last().bytes(); }
double Prefix::seconds() const { return impl_->last().seconds(); }

}  // namespace precis
