// A put as its caller holds it: layers pushed piece by piece, then a commit.
#include "client/src/put.h"

#include <string>
#include <utility>

#include "client/src/put_piece.h"

namespace precis {
namespace {

// A single head may come with any stride; the service asks for one that holds a head.
std::size_t stride_of(const HeadsView& view) {
  return view.num_heads > 1 ? view.head_stride_bytes : view.head_bytes();
}

// From the first head's first byte to the last head's last.
Bytes span_of(const HeadsView& view) {
  return {view.data, (view.num_heads - 1) * view.head_stride_bytes + view.head_bytes()};
}

Result<RemoteRegion> expose(Channel& channel, Bytes memory, std::vector<ExposedMemory>& exposed) {
  PRECIS_ASSIGN(ExposedMemory one, channel.expose(memory));
  exposed.push_back(std::move(one));
  return exposed.back().exposure->region();
}

Status expose_piece(Channel& channel, const LayerPush& push, msg::PushLayer& message,
                    std::vector<ExposedMemory>& exposed) {
  PRECIS_ASSIGN(message.keys, expose(channel, span_of(push.keys), exposed));
  PRECIS_ASSIGN(message.values, expose(channel, span_of(push.values), exposed));
  if (!push.queries.empty()) {
    PRECIS_ASSIGN(message.queries, expose(channel, span_of(push.queries), exposed));
  }
  if (!push.lse.empty()) {
    PRECIS_ASSIGN(message.lse, expose(channel, std::as_bytes(push.lse), exposed));
  }
  if (!push.query_mean.empty()) {
    PRECIS_ASSIGN(message.query_mean, expose(channel, std::as_bytes(push.query_mean), exposed));
    PRECIS_ASSIGN(message.query_covariance,
                  expose(channel, std::as_bytes(push.query_covariance), exposed));
  }
  if (!push.scores.empty()) {
    PRECIS_ASSIGN(message.scores, expose(channel, std::as_bytes(push.scores), exposed));
  }
  return {};
}

}  // namespace

Put::Impl::Impl(std::shared_ptr<Channel> link, ModelSpec spec, msg::PutBegun reply, Recipe parsed)
    : channel(std::move(link)),
      model(std::move(spec)),
      begun(std::move(reply)),
      recipe(std::move(parsed)),
      pushed(model.num_layers) {}

Put::Impl::~Impl() {
  if (ended.ok()) channel->tell(msg::AbortPut{begun.put});
}

Status Put::Impl::push(std::uint32_t layer, const LayerPush& push) {
  auto checked = check_piece(model, recipe, begun, layer, push);
  // What the service finds names its layer itself, which may be an earlier one.
  PRECIS_TRY(checked.status().with_context("layer " + std::to_string(layer)));
  PutPiece piece = std::move(checked).value();
  const PieceExtent extent = piece.extent();
  for (const PieceExtent& earlier : pushed[layer]) {
    if (!extent.overlaps(earlier)) continue;
    return Status::invalid(
        "layer " + std::to_string(layer) + ": heads [" + std::to_string(extent.head_begin) + ", " +
        std::to_string(extent.head_end) + ") and tokens [" + std::to_string(extent.token_begin) +
        ", " + std::to_string(extent.token_end) + ") of it were pushed before");
  }
  if (!begun.already_stored) PRECIS_TRY(send(layer, piece.push));
  pushed[layer].push_back(extent);
  return {};
}

Status Put::Impl::send(std::uint32_t layer, const LayerPush& push) {
  msg::PushLayer message;
  message.put = begun.put;
  message.layer = layer;
  message.head_begin = push.head_begin;
  message.head_count = push.keys.num_heads;
  message.token_begin = push.token_begin;
  message.token_count = push.keys.num_tokens;
  message.dtype = push.keys.dtype;
  message.keys_head_stride = stride_of(push.keys);
  message.values_head_stride = stride_of(push.values);
  message.num_queries = push.queries.num_tokens;
  std::vector<ExposedMemory> exposed;
  PRECIS_TRY(expose_piece(*channel, push, message, exposed));
  auto reply =
      channel->call<msg::Done>(std::move(message), Patience::kWhileAlive, std::move(exposed));
  return reply.status();
}

Put::Put(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Put::Put(Put&&) noexcept = default;
Put& Put::operator=(Put&&) noexcept = default;
Put::~Put() = default;

const msg::PutBegun& Put::begun() const { return impl_->begun; }

Status Put::layer(std::uint32_t layer, const LayerPush& push) {
  PRECIS_TRY(impl_->ended);
  const Status status = impl_->push(layer, push);
  if (!status.ok()) {
    impl_->channel->tell(msg::AbortPut{impl_->begun.put});
    impl_->ended = Status::invalid("the put has ended with an error: " + status.message());
  }
  return status;
}

Result<msg::SegmentInfo> Put::commit(Durability durability) {
  PRECIS_TRY(impl_->ended);
  auto reply = impl_->channel->call<msg::SegmentInfo>(msg::CommitPut{impl_->begun.put, durability},
                                                      Patience::kWhileAlive);
  if (reply.ok()) impl_->ended = Status::invalid("the put has ended with its commit");
  return reply;
}

Status Put::abort() {
  PRECIS_TRY(impl_->ended);
  impl_->ended = Status::invalid("the put has ended with its abort");
  return impl_->channel->call<msg::Done>(msg::AbortPut{impl_->begun.put}).status();
}

}  // namespace precis
