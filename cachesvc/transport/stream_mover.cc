#include "cachesvc/transport/stream_mover.h"

#include <string>
#include <utility>

namespace precis {

StreamMover::StreamMover(EventLoop& control, std::shared_ptr<DataStream> stream)
    : control_(control), stream_(std::move(stream)) {}

BulkLimits StreamMover::limits() const {
  // Enough under way that the socket never runs dry while the loop hears of what has ended.
  return {.chunk_bytes = 2u << 20, .ranges_per_chunk = 256, .chunks_under_way = 4};
}

void StreamMover::post(BulkChunk chunk, Ended ended) {
  const RemoteRegion& remote = chunk.transfer->remote();
  BulkHeader header{BulkKind::kPush, static_cast<std::uint32_t>(chunk.size_bytes), 0, remote.id,
                    chunk.offset};
  {
    const std::lock_guard lock(state_.mutex);
    if (!state_.canceled.ok()) return ended(state_.canceled);
  }
  if (chunk.transfer->kind() == BulkTransfer::Kind::kPush) {
    std::vector<Bytes> data(chunk.local.begin(), chunk.local.end());
    auto sent = [&control = control_, ended = std::move(ended)](bool ok) {
      control.post([ended, ok] {
        ended(ok ? Status() : Status::unavailable("the peer closed the connection"));
      });
    };
    return stream_->send({.header = header, .data = std::move(data), .sent = std::move(sent)});
  }
  PRECIS_CHECK(chunk.local.size() == 1);  // a pull is to one range
  header.kind = BulkKind::kPull;
  header.id = state_.places->add(chunk.local.front());
  {
    const std::lock_guard lock(state_.mutex);
    state_.pulls.emplace(header.id, Pull{std::move(ended), chunk.size_bytes});
  }
  stream_->send({.header = header, .data = {}});
}

Status StreamMover::on_frame(const BulkHeader& header) {
  if (header.kind == BulkKind::kEnd) {
    finish(header.id, header.offset == 0
                          ? Status()
                          : Status::not_found("the region is not exposed (any more)"));
    return {};
  }
  if (header.kind != BulkKind::kData) {
    return Status::invalid("a client sends no bulk frame of kind " +
                           std::to_string(static_cast<int>(header.kind)));
  }
  const std::lock_guard lock(state_.mutex);
  const auto pull = state_.pulls.find(header.id);
  if (pull == state_.pulls.end()) return {};  // given up meanwhile: thrown away
  if (pull->second.begun || header.size_bytes != pull->second.size_bytes) {
    return Status::invalid("transfer " + std::to_string(header.id) + " of " +
                           std::to_string(pull->second.size_bytes) + " B was answered with " +
                           std::to_string(header.size_bytes) + " B, or twice");
  }
  pull->second.begun = true;
  return {};
}

DataStream::Place StreamMover::place(const BulkHeader& header, std::size_t done) {
  auto access = state_.places->access(header.id, done, header.size_bytes - done);
  if (!access.ok()) return {};
  const MutableBytes bytes = access->bytes();
  return {bytes, std::make_shared<RegionTable::Access>(std::move(*access))};
}

void StreamMover::on_data(const BulkHeader& header) {
  const std::lock_guard lock(state_.mutex);
  const auto pull = state_.pulls.find(header.id);
  if (pull != state_.pulls.end()) pull->second.whole = true;
}

void StreamMover::finish(std::uint64_t id, Status status) {
  Ended ended;
  {
    const std::lock_guard lock(state_.mutex);
    const auto pull = state_.pulls.find(id);
    if (pull == state_.pulls.end()) return;
    if (status.ok() && !pull->second.whole) {
      status = Status::invalid("the client ended a transfer without its bytes");
    }
    ended = std::move(pull->second.ended);
    state_.pulls.erase(pull);
  }
  state_.places->retire(id);
  state_.places->wait_until_idle(id);
  state_.places->remove(id);
  control_.post([ended = std::move(ended), status = std::move(status)] { ended(status); });
}

void StreamMover::cancel(const Status& why) {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock(state_.mutex);
    if (state_.canceled.ok()) state_.canceled = why;
    for (const auto& [id, pull] : state_.pulls) ids.push_back(id);
  }
  for (const std::uint64_t id : ids) finish(id, why);
  stream_->close();  // tells the pushes
}

}  // namespace precis
