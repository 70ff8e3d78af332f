#include "cachesvc/transport/bulk_transfer.h"

#include <catch2/catch.hpp>

namespace precis {
namespace {

// A queue whose chunks end when the test ends them.
struct HeldQueue {
  explicit HeldQueue(BulkLimits limits)
      : queue(clock, limits, [this](BulkChunk chunk, BulkQueue::Ended ended) {
          chunks.push_back(std::move(chunk));
          ends.push_back(std::move(ended));
        }) {}
  SystemClock clock;
  BulkQueue queue;
  std::vector<BulkChunk> chunks;
  std::vector<BulkQueue::Ended> ends;
};

struct Fixture : HeldQueue {
  explicit Fixture(BulkLimits limits = {.chunk_bytes = 100,
                                        .ranges_per_chunk = 2,
                                        .chunks_under_way = 3})
      : HeldQueue(limits) {}
  std::vector<std::byte> memory = std::vector<std::byte>(1000);
  PlainRegistration registration{memory};
  std::vector<Status> results;
  MutableBytes piece(std::size_t offset, std::size_t size) {
    return MutableBytes(memory).subspan(offset, size);
  }
  void push(std::vector<MutableBytes> ranges) {
    RemoteRegion region;
    region.id = 1;
    region.size_bytes = 1000;
    auto transfer =
        BulkTransfer::make(BulkTransfer::Kind::kPush, region, 50, std::move(ranges), registration,
                           [this](Status s) { results.push_back(std::move(s)); });
    REQUIRE(transfer.ok());
    queue.add(std::move(*transfer));
  }
};

TEST_CASE("a transfer is cut by size and by ranges, in order", "[transport]") {
  Fixture f;
  f.push({f.piece(0, 150), f.piece(200, 10), f.piece(300, 10), f.piece(400, 0), f.piece(500, 5)});
  for (std::size_t i = 0; i < f.ends.size(); ++i) f.ends[i](Status());
  REQUIRE(f.chunks.size() == 3);
  CHECK(f.chunks[0].offset == 50);
  CHECK(f.chunks[0].size_bytes == 100);
  CHECK(f.chunks[1].offset == 150);
  REQUIRE(f.chunks[1].local.size() == 2);  // the rest of the first range, and the second
  CHECK(f.chunks[1].local[0].data() == f.memory.data() + 100);
  CHECK(f.chunks[1].size_bytes == 60);
  CHECK(f.chunks[2].offset == 210);
  CHECK(f.chunks[2].size_bytes == 15);
  CHECK(f.results == std::vector<Status>{Status()});
}

TEST_CASE("a transfer stands still until so much of it has moved", "[transport]") {
  Fixture f({.chunk_bytes = 100, .ranges_per_chunk = 2, .chunks_under_way = 1});
  CHECK_FALSE(f.queue.stalled_since().has_value());
  f.push({f.piece(0, 300)});
  const auto began = f.queue.stalled_since();
  REQUIRE(began.has_value());
  // Too few bytes: a peer that reads this slowly still counts as stalled.
  f.ends[0](Status());
  CHECK(f.queue.stalled_since() == began);

  std::vector<std::byte> memory(2 * BulkQueue::kStepBytes);
  const PlainRegistration registration{memory};
  HeldQueue large(
      {.chunk_bytes = BulkQueue::kStepBytes, .ranges_per_chunk = 2, .chunks_under_way = 1});
  RemoteRegion region;
  region.id = 1;
  region.size_bytes = memory.size();
  auto transfer = BulkTransfer::make(BulkTransfer::Kind::kPush, region, 0, {memory}, registration,
                                     [](const Status&) {});
  REQUIRE(transfer.ok());
  large.queue.add(std::move(*transfer));
  const auto first = large.queue.stalled_since();
  REQUIRE(first.has_value());
  large.ends[0](Status());
  CHECK(large.queue.stalled_since() > first);
  large.ends[1](Status());
  f.ends[1](Status());
  f.ends[2](Status());
}

TEST_CASE("no more chunks are under way than allowed, and the next starts as one ends",
          "[transport]") {
  Fixture f;
  f.push({f.piece(0, 900)});
  CHECK(f.chunks.size() == 3);
  f.ends[1](Status());
  CHECK(f.chunks.size() == 4);
  CHECK(f.results.empty());
}

TEST_CASE("a failed chunk fails its transfer once the others have ended", "[transport]") {
  Fixture f;
  f.push({f.piece(0, 900)});
  f.push({f.piece(0, 100)});
  f.ends[0](Status::unavailable("gone"));
  CHECK(f.results.empty());  // two chunks still use the memory
  f.ends[1](Status());
  f.ends[2](Status());
  REQUIRE(f.results.size() == 1);
  CHECK(f.results[0].code() == StatusCode::kUnavailable);
  REQUIRE(f.chunks.size() == 4);  // the next transfer continues
  f.ends[3](Status());
  CHECK(f.results.back().ok());
}

TEST_CASE("a failed queue ends what waits at once and what is under way as it ends",
          "[transport]") {
  Fixture f;
  f.push({f.piece(0, 900)});
  f.push({f.piece(0, 100)});
  f.queue.fail(Status::canceled("closed"));
  CHECK(f.results.size() == 1);
  for (std::size_t i = 0; i < 3; ++i) f.ends[i](Status());
  CHECK(f.results.size() == 2);
  f.push({f.piece(0, 10)});
  CHECK(f.results.size() == 3);
  for (const Status& status : f.results) CHECK(status.code() == StatusCode::kCanceled);
  CHECK(f.chunks.size() == 3);
}

TEST_CASE("a transfer of no bytes is done", "[transport]") {
  Fixture f;
  f.push({});
  f.push({f.piece(3, 0)});
  CHECK(f.results == std::vector<Status>{Status(), Status()});
  CHECK(f.chunks.empty());
}

}  // namespace
}  // namespace precis
