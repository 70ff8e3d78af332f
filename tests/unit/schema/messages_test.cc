// Every message is equal after encoding and decoding.
#include "precis/messages.h"

#include <catch2/catch.hpp>

#include "precis/limits.h"
#include "tests/unit/schema/random_messages.h"

namespace precis {
namespace {

using testing::RandomMessages;

TEST_CASE("every kind of request round-trips with random content", "[unit][schema]") {
  const auto seed = GENERATE(range<std::uint64_t>(1, 21));
  CAPTURE(seed);
  RandomMessages random(seed);
  for (std::size_t kind = 0; kind < testing::kRequestKinds; ++kind) {
    CAPTURE(kind);
    const msg::Request request = random.request(kind);
    REQUIRE(request.body.index() == kind);
    const auto decoded = decode_request(encode(request));
    REQUIRE(decoded.status() == Status());
    REQUIRE(*decoded == request);
  }
}

TEST_CASE("every kind of server message round-trips with random content", "[unit][schema]") {
  const auto seed = GENERATE(range<std::uint64_t>(1, 21));
  CAPTURE(seed);
  RandomMessages random(seed);
  std::vector<msg::ServerMessage> messages{random.layer_served()};
  for (std::size_t kind = 0; kind < testing::kReplyKinds; ++kind)
    messages.push_back(random.reply(kind));
  for (const msg::ServerMessage& message : messages) {
    const auto decoded = decode_server_message(encode(message));
    REQUIRE(decoded.status() == Status());
    REQUIRE(*decoded == message);
  }
}

TEST_CASE("a request with the longest path round-trips", "[unit][schema]") {
  msg::Lookup lookup;
  lookup.tokens.resize(limits::kPathTokensMax);
  for (std::uint32_t i = 0; i < lookup.tokens.size(); ++i) lookup.tokens[i] = i * 2654435761u;
  const msg::Request request{7, lookup};
  const auto bytes = encode(request);
  REQUIRE(bytes.size() <= limits::kMessageBytesMax);
  const auto decoded = decode_request(bytes);
  REQUIRE(decoded.status() == Status());
  REQUIRE((*decoded == request));  // extra parentheses: a failure prints no 16M tokens
}

TEST_CASE("a message that lies at an odd address decodes like any other", "[unit][schema]") {
  RandomMessages random(5);
  const msg::Request request = random.request(2);
  const auto bytes = encode(request);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> moved(shift + bytes.size());
    std::copy(bytes.begin(), bytes.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
    REQUIRE(decode_request(Bytes(moved).subspan(shift)).value() == request);
  }
}

TEST_CASE("an error message is cut and cleaned so that the peer accepts it", "[unit][schema]") {
  msg::Reply reply;
  reply.status = Status::invalid("\xff\xfe" + std::string(2 * limits::kErrorMessageBytesMax, 'x'));
  const auto decoded = decode_server_message(encode(msg::ServerMessage(reply)));
  REQUIRE(decoded.status() == Status());
  const Status& status = std::get<msg::Reply>(*decoded).status;
  REQUIRE(status.code() == StatusCode::kInvalidArgument);
  REQUIRE(status.message() == "??" + std::string(limits::kErrorMessageBytesMax - 2, 'x'));
}

TEST_CASE("an empty optional and an empty value are told apart", "[unit][schema]") {
  msg::SetBudget none, empty;
  empty.recipe = "";
  empty.keep = Budget::all();
  REQUIRE(std::get<msg::SetBudget>(decode_request(encode(msg::Request{1, none}))->body) == none);
  REQUIRE(std::get<msg::SetBudget>(decode_request(encode(msg::Request{1, empty}))->body) == empty);
  REQUIRE_FALSE(none == empty);
  msg::OpenSession unchanged{"s", {}}, no_ttl{"s", 0};
  REQUIRE(std::get<msg::OpenSession>(decode_request(encode(msg::Request{1, unchanged}))->body) ==
          unchanged);
  REQUIRE(std::get<msg::OpenSession>(decode_request(encode(msg::Request{1, no_ttl}))->body) ==
          no_ttl);
}

}  // namespace
}  // namespace precis
