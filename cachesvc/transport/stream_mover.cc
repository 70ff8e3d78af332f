#include "cachesvc/transport/stream_mover.h"

#include <string>
#include <utility>

namespace precis {

StreamMover::StreamMover(EventLoop& control, std::shared_ptr<DataStream> stream)
    : control_(control),
      stream_(std::move(stream)),
      places_(std::make_shared<RegionTable>(control.clock())) {}

BulkLimits StreamMover::limits() const {
  // Enough chunks that the socket never idles while the loop handles the ended ones.
  return {.chunk_bytes = 2u << 20, .ranges_per_chunk = 256, .chunks_under_way = 4};
}

void StreamMover::post(BulkChunk chunk, Ended ended) {
  const RemoteRegion& remote = chunk.transfer->remote();
  BulkHeader header{BulkKind::kPush, static_cast<std::uint32_t>(chunk.size_bytes), 0, remote.id,
                    chunk.offset};
  {
    const std::lock_guard lock(mutex_);
    if (!canceled_.ok()) return ended(canceled_);
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
  PRECIS_CHECK(chunk.local.size() == 1);  // a pull has one range
  header.kind = BulkKind::kPull;
  header.id = places_->add(chunk.local.front());
  {
    const std::lock_guard lock(mutex_);
    pulls_.emplace(header.id, Pull{std::move(ended), chunk.size_bytes});
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
  const std::lock_guard lock(mutex_);
  const auto pull = pulls_.find(header.id);
  if (pull == pulls_.end()) return {};  // canceled meanwhile: the data is discarded
  if (pull->second.begun || header.size_bytes != pull->second.size_bytes) {
    return Status::invalid("transfer " + std::to_string(header.id) + " of " +
                           std::to_string(pull->second.size_bytes) + " B was answered with " +
                           std::to_string(header.size_bytes) + " B, or twice");
  }
  pull->second.begun = true;
  return {};
}

DataStream::Place StreamMover::place(const BulkHeader& header, std::size_t done) {
  return DataStream::place_in(*places_, header.id, done, header.size_bytes - done);
}

void StreamMover::on_data(const BulkHeader& header) {
  const std::lock_guard lock(mutex_);
  const auto pull = pulls_.find(header.id);
  if (pull != pulls_.end()) pull->second.whole = true;
}

void StreamMover::finish(std::uint64_t id, Status status) {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    const auto pull = pulls_.find(id);
    if (pull == pulls_.end()) return;
    if (status.ok() && !pull->second.whole) {
      status = Status::invalid("the client ended a transfer without its bytes");
    }
    ended = std::move(pull->second.ended);
    pulls_.erase(pull);
  }
  places_->remove(id);
  control_.post([ended = std::move(ended), status = std::move(status)] { ended(status); });
}

void StreamMover::cancel(const Status& why) {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    if (canceled_.ok()) canceled_ = why;
    for (const auto& [id, pull] : pulls_) ids.push_back(id);
  }
  for (const std::uint64_t id : ids) finish(id, why);
  stream_->close();  // also reports the pushes as ended
}

}  // namespace precis
