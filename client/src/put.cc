// A put from its caller's side: layers pushed piece by piece, then a commit.
#include "client/src/put.h"

#include <optional>
#include <string>
#include <utility>

#include "client/src/paged_push.h"
#include "client/src/put_piece.h"
#include "precis/recipe.h"

namespace precis {

static_assert(limits::kPutsPerConnectionMax * Put::kLayersAheadMax <= Channel::kCallsMax);

namespace {

// The stride of a single head has no meaning and may be smaller than the head; the service refuses
// such a stride.
std::size_t stride_of(const HeadsView& view) {
  return view.num_heads > 1 ? view.head_stride_bytes : view.head_bytes();
}

// From the first head's first byte to the last head's last byte.
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

Result<std::unique_ptr<Put::Impl>> Put::Impl::start(std::shared_ptr<Nodes> nodes,
                                                    std::shared_ptr<StagingPool> staging,
                                                    std::shared_ptr<PageMovers> movers,
                                                    const CallOptions& options,
                                                    const ModelSpec& model, msg::BeginPut begin) {
  auto impl = std::make_unique<Impl>(std::move(nodes), std::move(staging), std::move(movers),
                                     options, model, std::move(begin));
  Retry retry(options, "begin_put");
  PRECIS_TRY(impl->begin(retry));
  return impl;
}

Put::Impl::Impl(std::shared_ptr<Nodes> connections, std::shared_ptr<StagingPool> pool,
                std::shared_ptr<PageMovers> page_movers, const CallOptions& opts,
                const ModelSpec& spec, msg::BeginPut begin)
    : nodes(std::move(connections)),
      staging(std::move(pool)),
      movers(std::move(page_movers)),
      options(opts),
      model(spec),
      pushed(model.num_layers),
      request_{0, std::move(begin)} {}

Put::Impl::~Impl() {
  cancel_all();
  if (channel && ended.ok()) channel->tell(msg::AbortPut{begun.put});
}

// ---- begin --------------------------------------------------------------------------------------

Status Put::Impl::begin(Retry& retry) {
  const Target owner = owner_of(std::get<msg::BeginPut>(request_.body), model.block_tokens);
  for (;;) {
    Nodes::Way way;
    auto found = nodes->find(retry, owner);
    Status failed = found.status();
    if (failed.ok()) {
      way = std::move(*found);
      auto reply = way.channel->call<msg::PutBegun>(request_, Patience::kWhileAlive, {},
                                                    Nodes::attempt_end(retry, *way.channel));
      failed = reply.status();
      if (reply.ok()) {
        channel = std::move(way.channel);
        begun = std::move(*reply);
        break;
      }
    }
    PRECIS_TRY(retry.again(nodes->noted(retry, failed, way)));
  }
  const std::size_t tokens = std::get<msg::BeginPut>(request_.body).tokens.size();
  if (begun.end != tokens || begun.begin >= begun.end) {
    return Status::internal("the service began a put of tokens [" + std::to_string(begun.begin) +
                            ", " + std::to_string(begun.end) + ") on a path of " +
                            std::to_string(tokens));
  }
  // This client may not know a newer service's recipe. Then only the service checks what the recipe
  // needs.
  auto parsed = parse_recipe(begun.recipe);
  recipe = parsed.ok() ? std::move(*parsed) : Recipe{};
  return {};
}

Status Put::Impl::begin_anew(Retry& retry) {
  const msg::PutBegun before = begun;
  PRECIS_TRY(begin(retry));
  if (begun.segment == before.segment) return {};
  return Status::unavailable(
      "since the connection was lost, the path's parent or the budget in force has changed: put "
      "again");
}

// ---- push ---------------------------------------------------------------------------------------

Result<Put::Impl::Staged> Put::Impl::make_room(const LayerPush& push) {
  PRECIS_TRY(check_paged_push(model, begun.end, push));
  Staged staged;
  PRECIS_ASSIGN(staged.mover, movers->find(push.pages->keys, push.pages->values));
  PRECIS_ASSIGN(staged.buffer, staging->allocate(staged_bytes(push)));
  staged.rows = staged_push(push, staged.buffer->bytes());
  return staged;
}

Status Put::Impl::start(std::uint32_t layer, const LayerPush& push) {
  const std::string name = "layer " + std::to_string(layer);
  std::optional<Staged> staged;
  if (push.pages) {
    PRECIS_TRY(wait(kLayersAheadMax - 1));  // so that one buffer is free
    auto room = make_room(push);
    PRECIS_TRY(room.status().with_context(name));
    staged = std::move(*room);
  }
  auto checked = check_piece(model, recipe, begun, layer, staged ? staged->rows : push);
  // Errors that the service finds name their own layer, which may be an earlier one.
  PRECIS_TRY(checked.status().with_context(name));
  PutPiece piece = std::move(checked).value();
  const PieceExtent extent = piece.extent();
  for (const PieceExtent& earlier : pushed[layer]) {
    if (!extent.overlaps(earlier)) continue;
    return Status::invalid(name + ": heads [" + std::to_string(extent.head_begin) + ", " +
                           std::to_string(extent.head_end) + ") and tokens [" +
                           std::to_string(extent.token_begin) + ", " +
                           std::to_string(extent.token_end) + ") of it were pushed before");
  }
  pushed[layer].push_back(extent);
  if (begun.already_stored) return {};
  if (staged) {
    staged->buffer->pin(*staged->mover);
    const Status filled = fill_piece(push, piece, *staged->mover, staged->buffer->bytes());
    PRECIS_TRY(filled.with_context(name));
    piece.staged = std::move(staged->buffer);
  }
  PRECIS_TRY(wait(kLayersAheadMax - 1));
  send(ahead_.emplace_back(options, layer, std::move(piece)));
  return {};
}

Status Put::Impl::wait(std::size_t left) {
  while (ahead_.size() > left) {
    const Status failed = answered(ahead_.front());
    ahead_.pop_front();
    PRECIS_TRY(failed);
  }
  return {};
}

Status Put::Impl::answered(Ahead& ahead) {
  for (;;) {
    const Status failed =
        ahead.unsent.ok() ? ahead.channel->finish<msg::Done>(ahead.call).status() : ahead.unsent;
    // Another piece may have restarted the put on another channel. Then the service does not have
    // this piece, even if its reply was OK.
    const bool elsewhere = ahead.channel != channel;
    if (failed.ok() && !elsewhere) {
      holds_bytes_ = true;
      return {};
    }
    const bool gone = failed.code() == StatusCode::kUnavailable;
    if (gone && !ahead.channel->lost()) return failed;  // the error is of this put alone
    if (gone && !elsewhere) {
      if (holds_bytes_) {
        return Status::unavailable(failed.message() +
                                   "; the bytes pushed so far are lost: put again");
      }
      PRECIS_TRY(ahead.retry.again(failed));
      PRECIS_TRY(begin_anew(ahead.retry));
    } else if (!gone && !failed.ok()) {
      PRECIS_TRY(ahead.retry.again(failed));
    }
    if (begun.already_stored) return {};
    send(ahead);
  }
}

void Put::Impl::send(Ahead& ahead) {
  ahead.channel = channel;
  ahead.unsent = expose_and_send(ahead);
}

Status Put::Impl::expose_and_send(Ahead& ahead) {
  const LayerPush& push = ahead.piece.push;
  msg::PushLayer message;
  message.put = begun.put;
  message.layer = ahead.layer;
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
  msg::Request request{0, std::move(message)};
  ahead.call =
      channel->begin(request, Patience::kWhileAlive, std::move(exposed), ahead.retry.deadline());
  return {};
}

void Put::Impl::cancel_all() {
  for (const Ahead& ahead : ahead_) {
    if (ahead.unsent.ok()) ahead.channel->cancel(ahead.call);
  }
  ahead_.clear();
}

void Put::Impl::end(const Status& failed) {
  cancel_all();
  channel->tell(msg::AbortPut{begun.put});
  // After a deadline or an interrupt a commit may be repeated, but not if the put is gone.
  const bool waited =
      failed.code() == StatusCode::kTimedOut || failed.code() == StatusCode::kCanceled;
  ended = Status(
      waited ? StatusCode::kUnavailable : failed.code(),
      "the put has ended with an error: " + failed.message() + (waited ? "; put again" : ""));
}

// ---- commit -------------------------------------------------------------------------------------

// If the connection is lost, so are the pushed bytes, but the service may have committed them
// before. Then a repeated put stores nothing. A node that lost the path's shard can't commit any
// more.
Result<msg::SegmentInfo> Put::Impl::commit(Durability durability, double prefill_seconds) {
  Retry retry(options, "commit");
  for (;;) {
    msg::Request request{0, msg::CommitPut{begun.put, durability, prefill_seconds}};
    auto reply =
        channel->call<msg::SegmentInfo>(request, Patience::kWhileAlive, {}, retry.deadline());
    if (reply.ok()) return reply;
    const Status failed = reply.status();
    const bool gone = failed.code() == StatusCode::kUnavailable;
    if (gone && !channel->lost()) return failed;  // the error is of this put alone
    if (failed.code() == StatusCode::kMoved) {
      (void)nodes->noted(retry, failed, {channel});
      const Status lost = Status::unavailable(
          "another node took the path's shard before the put was committed: put again");
      end(lost);
      return lost;
    }
    const std::uint32_t writers = std::get<msg::BeginPut>(request_.body).writers;
    if (failed.code() == StatusCode::kTimedOut && writers > 1) {
      return failed.with_context("the put has " + std::to_string(writers) +
                                 " writers and is committed once each of them asked");
    }
    PRECIS_TRY(retry.again(failed));
    if (!gone) continue;
    const auto before = channel;
    Status lost = begin_anew(retry);
    if (lost.ok() && begun.already_stored) continue;
    if (lost.ok()) {
      lost = Status::unavailable(
          "the connection was lost before the put was committed, and the pushed layers are lost: "
          "put again");
    }
    if (channel != before) end(lost);  // the new put holds memory
    return lost;
  }
}

Put::Put(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Put::Put(Put&&) noexcept = default;
Put& Put::operator=(Put&&) noexcept = default;
Put::~Put() = default;

const msg::PutBegun& Put::begun() const { return impl_->begun; }

Status Put::layer(std::uint32_t layer, const LayerPush& push) {
  PRECIS_TRY(start_layer(layer, push));
  return wait_layers();
}

Status Put::start_layer(std::uint32_t layer, const LayerPush& push) {
  PRECIS_TRY(impl_->ended);
  const Status status = impl_->start(layer, push);
  if (!status.ok()) impl_->end(status);
  return status;
}

Status Put::wait_layers(std::size_t left) {
  PRECIS_TRY(impl_->ended);
  const Status status = impl_->wait(left);
  if (!status.ok()) impl_->end(status);
  return status;
}

Result<msg::SegmentInfo> Put::commit(Durability durability, double prefill_seconds) {
  PRECIS_TRY(wait_layers());
  auto reply = impl_->commit(durability, prefill_seconds);
  if (reply.ok()) {
    impl_->committed = true;
    impl_->ended = Status::invalid("the put has ended with its commit");
  }
  return reply;
}

Status Put::abort() {
  if (!impl_->ended.ok()) return impl_->committed ? impl_->ended : Status();
  impl_->cancel_all();
  impl_->ended = Status::invalid("the put has ended with its abort");
  const Retry call(impl_->options, "abort");
  msg::Request request{0, msg::AbortPut{impl_->begun.put}};
  Status status =
      impl_->channel->call<msg::Done>(request, Patience::kOneTimeout, {}, call.deadline()).status();
  // For the caller the put has ended in any case; tell() informs the service as soon as it can.
  if (!status.ok()) impl_->channel->tell(msg::AbortPut{impl_->begun.put});
  return status;
}

}  // namespace precis
