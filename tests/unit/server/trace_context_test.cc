#include "cachesvc/server/trace_context.h"

#include <catch2/catch.hpp>
#include <random>

#include "precis/limits.h"

namespace precis {
namespace {

const std::string kExample = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

std::string text_of(const TraceContext& context) {
  return "00-" + hex_id(context.trace_high) + hex_id(context.trace_low) + "-" +
         hex_id(context.span) + (context.sampled ? "-01" : "-00");
}

}  // namespace

TEST_CASE("the example of W3C names a trace, a span and the sampled flag", "[unit][server]") {
  REQUIRE(kExample.size() == limits::kTraceparentBytesMax);
  const TraceContext expected{0x0af7651916cd43dd, 0x8448eb211c80319c, 0xb7ad6b7169203331, true};
  CHECK(parse_traceparent(kExample) == expected);
}

TEST_CASE("a later version is read as 00, and only the sampled flag counts", "[unit][server]") {
  std::string text = kExample;
  text.replace(0, 2, "cc").replace(53, 2, "fe");
  const auto context = parse_traceparent(text);
  REQUIRE(context);
  CHECK(context->span == 0xb7ad6b7169203331);
  CHECK_FALSE(context->sampled);
}

TEST_CASE("a traceparent of another form is none", "[unit][server]") {
  const auto changed = [](std::size_t at, const std::string& to) {
    return std::string(kExample).replace(at, to.size(), to);
  };
  const std::string trace = kExample.substr(3, 32), span = kExample.substr(36, 16);
  for (const std::string& text :
       {std::string(), std::string("00"), kExample + "-", " " + kExample.substr(1),
        changed(0, "ff"), changed(0, "0g"), changed(3, std::string(32, '0')),
        changed(36, std::string(16, '0')), changed(3, "0AF7"), changed(10, "-"), changed(2, "_"),
        changed(35, "0"), changed(52, " "), changed(53, "0x"), changed(53, "\xc3\xa9"),
        std::string(limits::kTraceparentBytesMax, '\0')}) {
    CAPTURE(text);
    CHECK_FALSE(parse_traceparent(text));
  }
}

TEST_CASE("every trace and span arrives as it was sent", "[unit][server]") {
  const auto seed = GENERATE(range(1u, 200u));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  // Some ids have leading zeros, and a half of a trace's id may be 0.
  const auto id = [&] { return random() >> random() % 64; };
  const TraceContext sent{seed % 7 == 0 ? 0 : id(), id() | 1, id() | 1, random() % 2 == 0};
  const std::string text = text_of(sent);
  CHECK(parse_traceparent(text) == sent);
  // Any other byte, at any place, gives another context or none.
  std::string other = text;
  char& byte = other[random() % other.size()];
  byte = static_cast<char>(byte ^ (1 + random() % 255));
  const auto parsed = parse_traceparent(other);
  if (parsed) CHECK((*parsed != sent || other.substr(3, 50) == text.substr(3, 50)));
}

}  // namespace precis
