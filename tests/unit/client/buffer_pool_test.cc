#include "client/src/buffer_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "cachesvc/net/pages.h"
#include "precis/status.h"

namespace {

using namespace precis;

// Counts registrations; makes no connection.
class CountingTransport final : public ClientTransport {
 public:
  int made = 0, alive = 0;
  bool refuse = false;

  Result<std::unique_ptr<Registration>> register_memory(MutableBytes) override {
    return Status::unsupported("a counter");
  }
  Result<std::unique_ptr<Registration>> allocate_memory(std::size_t size_bytes) override {
    if (refuse) return Status::out_of_space("no room for a registration");
    struct Counted final : Registration {
      Counted(CountingTransport& owner, std::unique_ptr<Pages> pages)
          : owner_(owner), pages_(std::move(pages)) {
        ++owner_.made;
        ++owner_.alive;
      }
      ~Counted() override { --owner_.alive; }
      MutableBytes bytes() const override { return pages_->bytes(); }
      CountingTransport& owner_;
      std::unique_ptr<Pages> pages_;
    };
    PRECIS_ASSIGN(auto pages, Pages::make_private(std::max(size_bytes, Pages::kUnitBytes)));
    return std::unique_ptr<Registration>(std::make_unique<Counted>(*this, std::move(pages)));
  }
  void connect(const std::string&, const Login&, std::uint32_t,
               std::function<void(Result<Connected>)>) override {}
};

TEST_CASE("a freed buffer serves the next get without a new registration", "[client]") {
  CountingTransport transport;
  BufferPool pool(transport);
  const std::byte* first = nullptr;
  {
    auto buffer = pool.allocate(3'000'000).value();
    REQUIRE(buffer->bytes().size() >= 3'000'000);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer->bytes().data()) % (2u << 20) == 0);
    CHECK(buffer->registration().bytes().data() == buffer->bytes().data());
    CHECK(buffer->registration().bytes().size() == buffer->bytes().size());
    std::memset(buffer->bytes().data(), 7, buffer->bytes().size());
    first = buffer->bytes().data();
  }
  const auto again = pool.allocate(2'500'000).value();
  CHECK(again->bytes().data() == first);
  CHECK(transport.made == 1);
}

TEST_CASE("a buffer in use is never handed out again", "[client]") {
  CountingTransport transport;
  BufferPool pool(transport);
  const auto one = pool.allocate(1).value();
  const auto two = pool.allocate(1).value();
  CHECK(one->bytes().data() != two->bytes().data());
  CHECK(transport.alive == 2);
}

TEST_CASE("a small get does not take a far larger buffer", "[client]") {
  CountingTransport transport;
  BufferPool pool(transport);
  pool.allocate(std::size_t{64} << 20).value().reset();
  const auto small = pool.allocate(1).value();
  CHECK(small->bytes().size() == std::size_t{2} << 20);
}

TEST_CASE("the pool keeps a bounded number of freed buffers", "[client]") {
  CountingTransport transport;
  {
    BufferPool pool(transport);
    std::vector<std::unique_ptr<BufferPool::Buffer>> buffers;
    for (std::size_t i = 0; i < BufferPool::kKeptBuffersMax + 3; ++i) {
      buffers.push_back(pool.allocate(1).value());
    }
    buffers.clear();
    CHECK(transport.alive == static_cast<int>(BufferPool::kKeptBuffersMax));
  }
  CHECK(transport.alive == 0);
}

TEST_CASE("memory that cannot be had or registered is out of space", "[client]") {
  CountingTransport transport;
  BufferPool pool(transport);
  CHECK(pool.allocate(std::size_t{1} << 62).status().code() == StatusCode::kOutOfSpace);
  CHECK(pool.allocate(SIZE_MAX - 5).status().code() == StatusCode::kOutOfSpace);
  transport.refuse = true;
  CHECK(pool.allocate(1).status().code() == StatusCode::kOutOfSpace);
}

}  // namespace
