// get: plan -> memory -> request; the rest arrives in get_state.cc.
#include "client/src/prefix.h"

#include <utility>

namespace precis {

Result<std::shared_ptr<Prefix::Impl>> Prefix::Impl::begin(const std::shared_ptr<Channel>& channel,
                                                          const LookupMatch& match,
                                                          const Budget& keep) {
  PRECIS_ASSIGN(GetPlan plan, plan_get(match, keep));
  PRECIS_ASSIGN(auto buffer, channel->buffers().allocate(plan.capacity_bytes));
  ExposedMemory exposed;
  PRECIS_ASSIGN(exposed.exposure, channel->expose(buffer->registration()));
  msg::Get body = get_request(plan, exposed.exposure->region());

  auto state = std::make_shared<GetState>(std::move(plan), std::move(buffer), channel->verifier());
  PendingRequest request;
  request.sink = state;
  request.patience = Patience::kWhileAlive;
  request.memory.push_back(std::move(exposed));
  request.held = state;
  const std::uint64_t id = channel->start(std::move(body), std::move(request));
  return std::make_shared<Impl>(channel, std::move(state), id);
}

Prefix::Impl::~Impl() {
  if (!state->finished()) channel->tell(msg::Cancel{request});
}

Prefix::Prefix(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Prefix::Prefix(Prefix&&) noexcept = default;
Prefix& Prefix::operator=(Prefix&&) noexcept = default;
Prefix::~Prefix() = default;

const ModelSpec& Prefix::model() const { return impl_->state->plan().model; }
std::uint32_t Prefix::matched_tokens() const {
  return impl_->state->plan().links.back().matched_end;
}
std::uint32_t Prefix::num_layers() const { return model().num_layers; }
Status Prefix::wait_layer(std::uint32_t layer) const { return impl_->state->wait_layer(layer); }
Status Prefix::wait() const { return impl_->state->wait(); }
HeadEntries Prefix::head(std::uint32_t layer, std::uint32_t head) const {
  return impl_->state->head(layer, head);
}
Plan Prefix::plan() const { return impl_->state->counts(); }
std::uint64_t Prefix::bytes() const { return impl_->state->bytes(); }
double Prefix::seconds() const { return impl_->state->seconds(); }

}  // namespace precis
