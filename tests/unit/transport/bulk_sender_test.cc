// The sending half of a stream, over real sockets: what goes out, and what is at rest after
// close().
#include "cachesvc/transport/bulk_sender.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/transport/party.h"

namespace precis {
namespace {

using test::get;
using test::LoopThread;

constexpr std::byte kOverwritten{0xEE};

// Byte i of all that is ever sent, never kOverwritten.
std::byte pattern(std::size_t i) { return std::byte((i * 131 + (i >> 13)) % 0xEE); }

struct SocketPair {
  SocketPair() { REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0); }
  ~SocketPair() {
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
  void close_end(int i) { ::close(std::exchange(ends[i], -1)); }
  int ends[2] = {-1, -1};
};

// All that comes, until nobody can send any more.
std::vector<std::byte> read_all(int socket) {
  std::vector<std::byte> all;
  std::vector<std::byte> piece(64u << 10);
  for (;;) {
    const ssize_t got = ::recv(socket, piece.data(), piece.size(), 0);
    if (got <= 0) return all;
    all.insert(all.end(), piece.begin(), piece.begin() + got);
  }
}

AmHeader header_of(std::uint64_t op, std::size_t size_bytes) {
  AmHeader header;
  header.kind = AmKind::kPushData;
  header.op = op;
  header.size_bytes = size_bytes;
  return header;
}

// The data of the frames that begin in `received`, their headers checked; `whole` counts those that
// are all there.
std::vector<std::byte> data_of(const std::vector<std::byte>& received, std::uint64_t* whole) {
  std::vector<std::byte> data;
  *whole = 0;
  for (std::size_t at = 0; received.size() - at >= AmHeader::kBytes;) {
    const Result<AmHeader> header = decode_am_header(Bytes(received).subspan(at, AmHeader::kBytes));
    REQUIRE(header.ok());
    REQUIRE(header->op == *whole);
    at += AmHeader::kBytes;
    const auto size = std::min<std::size_t>(header->size_bytes, received.size() - at);
    const auto begin = received.begin() + static_cast<std::ptrdiff_t>(at);
    data.insert(data.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
    at += size;
    if (size < header->size_bytes) break;
    ++*whole;
  }
  return data;
}

struct Frame {
  std::vector<Bytes> ranges;
  std::size_t size_bytes = 0;
};

// Memory in frames of all sizes, of one range and of hundreds.
class Source {
 public:
  explicit Source(std::mt19937_64& rng) {
    const auto below = [&](std::size_t n) { return std::size_t(rng() % n); };
    for (int i = 0; i < 24; ++i) {
      const std::size_t ranges = below(3) == 0 ? 1 + below(300) : 1;
      const std::size_t most = below(2) == 0 ? 3u << 20 : 2000;
      std::vector<std::size_t>& sizes = sizes_.emplace_back();
      for (std::size_t r = 0; r < ranges; ++r) sizes.push_back(1 + below(most / ranges));
      for (const std::size_t size : sizes) bytes_.resize(bytes_.size() + size);
    }
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = pattern(i);
  }
  std::vector<Frame> frames() const {
    std::vector<Frame> all;
    Bytes rest = bytes_;
    for (const auto& sizes : sizes_) {
      Frame& frame = all.emplace_back();
      for (const std::size_t size : sizes) {
        frame.ranges.push_back(rest.first(size));
        frame.size_bytes += size;
        rest = rest.subspan(size);
      }
    }
    return all;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  void overwrite() { std::fill(bytes_.begin(), bytes_.end(), kOverwritten); }

 private:
  std::vector<std::vector<std::size_t>> sizes_;
  std::vector<std::byte> bytes_;
};

// A sender on a loop, over the first end of a pair of sockets; closed when it goes.
struct Sending {
  explicit Sending(unsigned num_threads, int socket = -1) {
    if (num_threads > 0) threads.emplace("test", num_threads);
    loop.on_loop([&] {
      sender = std::make_unique<BulkSender>(loop.loop, socket >= 0 ? socket : sockets.ends[0],
                                            threads ? &*threads : nullptr,
                                            BulkSender::Handlers{.moved = [this] { ++moved; },
                                                                 .broken =
                                                                     [this](int error) {
                                                                       broken_by = error;
                                                                       ++broken;
                                                                     }});
    });
  }
  ~Sending() { close(); }
  void close() {
    loop.on_loop([&] { sender.reset(); });
    sockets.close_end(0);
  }

  SocketPair sockets;
  std::atomic<int> moved{0}, broken{0}, broken_by{0};
  LoopThread loop;
  std::optional<Executor> threads;  // goes before the loop to which it posts
  std::unique_ptr<BulkSender> sender;
};

TEST_CASE("frames go out whole and in order, by the loop or by threads", "[unit][transport]") {
  std::mt19937_64 rng(1);
  const unsigned threads = GENERATE(0u, 1u, 3u);
  const Source source(rng);
  const std::vector<Frame> frames = source.frames();
  std::vector<std::size_t> sent;
  std::promise<void> all_sent;
  std::future<std::vector<std::byte>> received;
  Sending sending(threads);
  received = std::async(std::launch::async, [&] { return read_all(sending.sockets.ends[1]); });

  sending.loop.on_loop([&] {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      const auto told = [&, i](bool whole) {
        if (whole) sent.push_back(i);
        if (sent.size() == frames.size()) all_sent.set_value();
      };
      sending.sender->send(header_of(i, frames[i].size_bytes), frames[i].ranges, told);
    }
  });
  get(all_sent.get_future());
  sending.close();
  CHECK(std::is_sorted(sent.begin(), sent.end()));
  std::uint64_t whole = 0;
  const bool same = data_of(received.get(), &whole) == source.bytes();
  CHECK(same);
  CHECK(whole == frames.size());
  CHECK(sending.broken == 0);
}

TEST_CASE("who hears that a frame was sent may send the next", "[unit][transport]") {
  std::mt19937_64 rng(2);
  const unsigned threads = GENERATE(0u, 1u, 2u);
  const Source source(rng);
  const std::vector<Frame> frames = source.frames();
  std::size_t begun = 0, sent = 0;
  std::promise<void> all_sent;
  std::future<std::vector<std::byte>> received;
  Sending sending(threads);
  received = std::async(std::launch::async, [&] { return read_all(sending.sockets.ends[1]); });

  std::function<void()> send_next = [&] {
    if (begun == frames.size()) return;
    const std::size_t i = begun++;
    sending.sender->send(header_of(i, frames[i].size_bytes), frames[i].ranges, [&](bool whole) {
      sent += whole ? 1 : 0;
      if (sent == frames.size()) all_sent.set_value();
      send_next();
    });
  };
  sending.loop.on_loop([&] {
    for (int i = 0; i < 3; ++i) send_next();
  });
  get(all_sent.get_future());
  sending.close();
  std::uint64_t whole = 0;
  const bool same = data_of(received.get(), &whole) == source.bytes();
  CHECK(same);
}

TEST_CASE("a large frame is sent beside the loop", "[unit][transport]") {
  std::promise<void> gate;
  const std::vector<std::byte> bytes(std::size_t{1} << 20);
  std::promise<void> all_sent;
  Sending sending(1);
  sending.threads->post([&] { gate.get_future().wait(); });
  sending.loop.on_loop([&] {
    sending.sender->send(header_of(0, bytes.size()), {bytes},
                         [&](bool whole) { whole ? all_sent.set_value() : void(); });
  });
  sending.loop.on_loop([] {});  // it has other things to do
  std::byte first;
  CHECK(::recv(sending.sockets.ends[1], &first, 1, MSG_DONTWAIT) < 0);
  gate.set_value();
  auto received = std::async(std::launch::async, [&] { return read_all(sending.sockets.ends[1]); });
  get(all_sent.get_future());
  sending.close();
  CHECK(received.get().size() == AmHeader::kBytes + bytes.size());
}

TEST_CASE("who polls is not left waiting for the loop", "[unit][transport]") {
  const std::vector<std::byte> bytes(std::size_t{8} << 20);  // more than a socket takes
  std::size_t received = 0;
  bool all_sent = false;
  Sending sending(0);
  sending.loop.on_loop([&] {
    sending.sender->send(header_of(0, bytes.size()), {bytes},
                         [&](bool whole) { all_sent = whole; });
    CHECK_FALSE(all_sent);
    std::vector<std::byte> piece(1u << 20);
    for (int idle = 0; !all_sent && idle < 1000; ++idle) {
      const ssize_t got = ::recv(sending.sockets.ends[1], piece.data(), piece.size(), MSG_DONTWAIT);
      if (got > 0) received += static_cast<std::size_t>(got), idle = 0;
      sending.sender->poll();
    }
  });
  CHECK(all_sent);
  CHECK(received > 0);
}

TEST_CASE("after a close amid sending no memory is read, and every frame was told of once",
          "[unit][transport][property]") {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 30; ++round) {
    Source source(rng);
    const std::vector<Frame> frames = source.frames();
    std::vector<int> told(frames.size());
    std::size_t sent_whole = 0;
    std::future<std::vector<std::byte>> received;
    Sending sending(2);
    received = std::async(std::launch::async, [&] { return read_all(sending.sockets.ends[1]); });
    sending.loop.on_loop([&] {
      for (std::size_t i = 0; i < frames.size(); ++i) {
        sending.sender->send(header_of(i, frames[i].size_bytes), frames[i].ranges,
                             [&, i](bool whole) {
                               ++told[i];
                               sent_whole += whole ? 1 : 0;
                             });
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % 8000));
    sending.loop.on_loop([&] {
      sending.sender->close();
      source.overwrite();
    });
    sending.close();
    CHECK(std::all_of(told.begin(), told.end(), [](int times) { return times == 1; }));
    std::uint64_t whole = 0;
    const std::vector<std::byte> data = data_of(received.get(), &whole);
    CHECK(whole == sent_whole);
    std::size_t right = 0;
    while (right < data.size() && data[right] == pattern(right)) ++right;
    CHECK(right == data.size());
  }
}

TEST_CASE("a peer that is gone is not told of, a socket that breaks is, once",
          "[unit][transport]") {
  const bool gone = GENERATE(true, false);
  int pipe_ends[2];  // no socket at all: that no peer can bring about
  REQUIRE(::pipe(pipe_ends) == 0);
  const std::vector<std::byte> bytes(std::size_t{1} << 20);
  int ended = 0, whole = 0;
  {
    Sending sending(1, gone ? -1 : pipe_ends[1]);
    sending.sockets.close_end(1);
    sending.loop.on_loop([&] {
      for (const std::size_t size : {bytes.size(), std::size_t{100}}) {
        sending.sender->send(header_of(0, size), {Bytes(bytes).first(size)}, [&](bool sent) {
          ++ended;
          whole += sent ? 1 : 0;
        });
      }
    });
    // It has tried when it was told that it moved; what it has to tell is on the loop by then.
    const auto late = std::chrono::steady_clock::now() + test::kPatience;
    while (sending.moved == 0 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
    std::promise<void> later;
    std::unique_ptr<EventLoop::Timer> timer;
    sending.loop.on_loop([&] {
      timer = sending.loop.loop.after(std::chrono::milliseconds(1), [&] { later.set_value(); });
    });
    get(later.get_future());
    sending.loop.on_loop([&] { timer.reset(); });
    CHECK(sending.broken == (gone ? 0 : 1));
    CHECK(sending.broken_by == (gone ? 0 : ENOTSOCK));
    CHECK(ended == 0);  // only close() tells that their memory is at rest
  }
  CHECK(ended == 2);
  CHECK(whole == 0);
  for (const int fd : pipe_ends) ::close(fd);
}

}  // namespace
}  // namespace precis
