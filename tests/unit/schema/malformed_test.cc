// Bytes from outside: whatever they contain, decoding gives a value or a Status that names the
// error. The asan preset checks memory accesses here; tests/fuzz covers more inputs.
#include <catch2/catch.hpp>
#include <functional>
#include <limits>

#include "precis/hint_limits.h"
#include "precis/limits.h"
#include "precis/messages.h"
#include "tests/unit/schema/random_messages.h"

namespace precis {
namespace {

using Catch::Matchers::Contains;
using testing::RandomMessages;

// A message, its decoder, and whether the decoded message is equal.
struct Sample {
  std::string name;
  std::vector<std::byte> bytes;
  std::function<Status(Bytes)> decode;
};

std::vector<Sample> samples(std::uint64_t seed) {
  RandomMessages random(seed);
  const auto request = [](Bytes b) { return decode_request(b).status(); };
  const auto server = [](Bytes b) { return decode_server_message(b).status(); };
  std::vector<Sample> all{{"layer served", encode(random.layer_served()), server}};
  for (std::size_t kind = 0; kind < testing::kRequestKinds; ++kind) {
    all.push_back({"request " + std::to_string(kind), encode(random.request(kind)), request});
  }
  for (std::size_t kind = 0; kind < testing::kReplyKinds; ++kind) {
    all.push_back({"reply " + std::to_string(kind), encode(random.reply(kind)), server});
  }
  return all;
}

// Copies to a heap block of exact size, so the sanitizer detects reads past the end.
Status decode_copy(const Sample& sample, Bytes bytes) {
  const std::vector<std::byte> copy(bytes.begin(), bytes.end());
  return sample.decode(copy);
}

TEST_CASE("a message cut at any length is refused", "[unit][schema]") {
  for (const Sample& sample : samples(11)) {
    CAPTURE(sample.name);
    REQUIRE(decode_copy(sample, sample.bytes).ok());
    for (std::size_t size = 0; size < sample.bytes.size(); ++size) {
      CAPTURE(size);
      const Status status = decode_copy(sample, Bytes(sample.bytes).first(size));
      REQUIRE(status.code() == StatusCode::kInvalidArgument);
    }
  }
}

TEST_CASE("bytes after a message are refused", "[unit][schema]") {
  for (Sample& sample : samples(12)) {
    CAPTURE(sample.name);
    sample.bytes.resize(sample.bytes.size() + 8);
    REQUIRE_THAT(sample.decode(sample.bytes).message(), Contains("8 bytes follow the message"));
  }
}

TEST_CASE("a message with any one bit flipped decodes or is refused, and nothing else",
          "[unit][schema]") {
  for (Sample& sample : samples(13)) {
    CAPTURE(sample.name);
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < sample.bytes.size() * 8; ++bit) {
      const auto mask = static_cast<std::byte>(1 << bit % 8);
      sample.bytes[bit / 8] ^= mask;
      const Status status = decode_copy(sample, sample.bytes);
      if (!status.ok()) {
        ++refused;
        REQUIRE(status.code() == StatusCode::kInvalidArgument);
        REQUIRE_FALSE(status.message().empty());
      }
      sample.bytes[bit / 8] ^= mask;
    }
    REQUIRE(refused > 0);  // at least some bits of the segment table
  }
}

TEST_CASE("random bytes are refused", "[unit][schema]") {
  RandomMessages random(14);
  for (int round = 0; round < 2000; ++round) {
    const auto bytes = random.bytes(random.number(256));
    // Messages have no magic. Bytes that are mostly zero may be a valid empty message, but random
    // bytes are not.
    REQUIRE(decode_request(bytes).status().code() == StatusCode::kInvalidArgument);
    REQUIRE(decode_server_message(bytes).status().code() == StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a message over the maximum size is refused unread", "[unit][schema]") {
  // The bytes of this span are never read, so they need not exist.
  const std::vector<std::byte> few(8);
  const Bytes huge(few.data(), limits::kMessageBytesMax + 8);
  REQUIRE_THAT(decode_request(huge).status().message(), Contains("exceed the maximum"));
  REQUIRE_FALSE(request_id(huge).has_value());
}

std::string refusal(const msg::RequestBody& body) {
  const auto decoded = decode_request(encode(msg::Request{1, body}));
  REQUIRE(decoded.status().code() == StatusCode::kInvalidArgument);
  return decoded.status().message();
}

TEST_CASE("requests out of range are refused with the field's name and its limit",
          "[unit][schema]") {
  RandomMessages random(15);
  msg::PushLayer push;
  const msg::PushLayer sound = push;

  push.layer = limits::kLayersMax;
  CHECK_THAT(refusal(push), Contains("layer is 1024, maximum 1023"));
  push = sound;
  push.head_begin = 1000;
  push.head_count = 25;
  CHECK_THAT(refusal(push), Contains("head_count is 25, maximum 24"));
  push = sound;
  push.token_count = limits::kPathTokensMax + 1;
  CHECK_THAT(refusal(push), Contains("token_count is 16777217, maximum 16777216"));
  push = sound;
  push.num_queries = limits::kObservationQueriesMax + 1;
  CHECK_THAT(refusal(push), Contains("num_queries is 65537, maximum 65536"));
  push = sound;
  push.dtype = static_cast<Dtype>(0);
  CHECK_THAT(refusal(push), Contains("dtype is unset"));
  push.dtype = static_cast<Dtype>(9);
  CHECK_THAT(refusal(push), Contains("dtype is 9, maximum 4"));
  push = sound;
  push.keys.address = ~std::uint64_t{0} - 10;
  push.keys.size_bytes = 11;
  CHECK_THAT(refusal(push), Contains("keys: size_bytes is 11, maximum 10"));
  push = sound;
  push.head_count = 2;
  push.values_head_stride = 64;
  CHECK_THAT(refusal(push), Contains("values_head_stride is 64, maximum 0"));
  push = sound;
  push.keys.space = static_cast<MemorySpace>(2);
  CHECK_THAT(refusal(push), Contains("keys: space is 2, maximum 1"));
  push = sound;
  push.lse.emplace().key = std::string(limits::kRegionKeyBytesMax + 1, 'k');
  CHECK_THAT(refusal(push), Contains("lse: key length is 4097, maximum 4096"));

  msg::PushProjection weights;
  weights.width = 8;
  weights.dtype = Dtype::kF8E4M3;
  CHECK_THAT(refusal(weights), Contains("dtype is f8_e4m3; weights must be bf16, f16 or f32"));

  msg::Lookup lookup;
  lookup.tokens.resize(limits::kPathTokensMax + 1);
  CHECK_THAT(refusal(lookup), Contains("tokens count is 16777217, maximum 16777216"));
  lookup.tokens.resize(1);
  lookup.align = GENERATE(0u, limits::kAlignMax + 1);
  CHECK_THAT(refusal(lookup), Contains("align is ") && Contains("must be in [1, 4096]"));
  lookup.align = 1;
  lookup.keep = Budget{static_cast<Budget::Kind>(7), 1};
  CHECK_THAT(refusal(lookup), Contains("keep: kind is 7, maximum 6"));
  msg::Get get;
  get.links.resize(limits::kChainSegmentsMax + 1);
  CHECK_THAT(refusal(get), Contains("links count is 4097, maximum 4096"));
  get.links.resize(1);
  get.budget.kind = static_cast<Budget::Kind>(7);
  CHECK_THAT(refusal(get), Contains("budget: kind is 7, maximum 6"));
  get.budget = {};
  get.head_begin = 1;
  get.head_count = limits::kKvHeadsMax;
  CHECK_THAT(refusal(get), Contains("head_count is 1024, maximum 1023"));
  get.head_begin = get.head_count = 0;
  get.links[0].counts = {limits::kPathTokensMax + 1};
  CHECK_THAT(refusal(get), Contains("links: counts is 16777217, maximum 16777216"));
  get.links[0].counts.assign(limits::kMatchCountsMax, 1);
  get.links.push_back({});
  get.links[1].counts = {1};
  CHECK_THAT(refusal(get), Contains("counts of all links is 4194305, maximum 4194304"));
  CHECK_THAT(refusal(msg::CommitPut{1, static_cast<Durability>(4)}), Contains("durability is 4"));
  CHECK_THAT(refusal(msg::ListPrefixes{{}, limits::kListPageRowsMax + 1}),
             Contains("limit is 1001"));
}

TEST_CASE("seconds of a prefill are finite, not negative and bounded", "[unit][schema]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double seconds : {-1.0, nan, 2 * limits::kPrefillSecondsMax}) {
    CAPTURE(seconds);
    msg::BeginPut put;
    put.prefill_seconds = seconds;
    msg::CommitPut commit;
    commit.prefill_seconds = seconds;
    for (const msg::RequestBody& body : {msg::RequestBody(put), msg::RequestBody(commit)}) {
      const Status status = decode_request(encode(msg::Request{1, body})).status();
      CHECK(status.code() == StatusCode::kInvalidArgument);
      CHECK_THAT(status.message(), Contains("prefill_seconds is ") && Contains("leave it out"));
    }
  }
}

TEST_CASE("retention is set to something, within its limits", "[unit][schema]") {
  const auto refusal = [](const msg::SetRetention& change) {
    return decode_request(encode(msg::Request{1, change})).status().message();
  };
  CHECK_THAT(refusal({}), Contains("give a priority, a ttl or both"));
  CHECK_THAT(refusal({{}, limits::kPriorityMax + 1, {}}), Contains("priority is 101"));
  CHECK_THAT(refusal({{}, {}, limits::kHintSecondsMax + 1}), Contains("ttl_seconds is "));
  CHECK(refusal({{}, {}, 0}).empty());
}

TEST_CASE("names and texts that are not what they must be are refused by name", "[unit][schema]") {
  const std::string longest(limits::kNameBytesMax, 'n');
  REQUIRE(decode_request(encode(msg::Request{1, msg::ShowSession{longest}})).ok());
  CHECK_THAT(refusal(msg::ShowSession{longest + "n"}), Contains("name length is 257, maximum 256"));
  CHECK_THAT(refusal(msg::ForkSession{"a", "tab\there"}),
             Contains("new_name has control characters"));
  CHECK_THAT(refusal(msg::ForkSession{"a", std::string("nul\0l", 5)}),
             Contains("control characters"));
  // Overlong, surrogate, above the last code point, truncated, unexpected continuation byte.
  for (const char* bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"}) {
    CHECK_THAT(refusal(msg::ShowSession{bad}), Contains("name is not UTF-8"));
  }
  msg::SetBudget set;
  set.recipe = std::string(limits::kRecipeBytesMax + 1, 'r');
  CHECK_THAT(refusal(set), Contains("recipe length is 16385, maximum 16384"));
}

TEST_CASE("a model that makes no sense is refused where it enters", "[unit][schema]") {
  RandomMessages random(16);
  msg::RegisterModel message = std::get<msg::RegisterModel>(random.request(0).body);
  const ModelSpec sound = message.model;
  message.model.head_dim = limits::kHeadDimMax + 1;
  CHECK_THAT(refusal(message), Contains("head_dim is 1025"));
  message.model = sound;
  message.model.num_q_heads = sound.num_kv_heads + 1;
  if (sound.num_kv_heads > 1)
    CHECK_THAT(refusal(message), Contains("not a multiple of num_kv_heads"));
  message.model = sound;
  message.model.block_tokens = 0;
  CHECK_THAT(refusal(message), Contains("block_tokens is 0"));
}

TEST_CASE("replies whose parts do not fit together are refused", "[unit][schema]") {
  const auto refused = [](const msg::ServerMessage& message) {
    const auto decoded = decode_server_message(encode(message));
    REQUIRE(decoded.status().code() == StatusCode::kInvalidArgument);
    return decoded.status().message();
  };
  msg::SegmentInfo info;
  info.plan = Plan{2, 3, std::vector<std::uint32_t>(5)};
  CHECK_THAT(refused(msg::Reply{1, {}, info}),
             Contains("counts has 5 elements for 2 layers of 3 heads"));
  info.plan = Plan{limits::kLayersMax + 1, 0, {}};
  CHECK_THAT(refused(msg::Reply{1, {}, info}), Contains("num_layers is 1025"));
  info.plan.reset();
  info.begin = 5;
  info.end = 4;
  CHECK_THAT(refused(msg::Reply{1, {}, info}), Contains("end is [5, 4)"));
  msg::LayerServed served;
  served.counts = {1, 2};
  CHECK_THAT(refused(served), Contains("tail_checksums has 0 elements for 2 counts"));
  served.tail_checksums.resize(2);
  served.counts[1] = limits::kPathTokensMax + 1;
  CHECK_THAT(refused(served), Contains("counts is 16777217"));
  msg::Match match;
  match.links.resize(1);
  match.links[0].matched_end = 1;
  CHECK_THAT(refused(msg::Reply{1, {}, match}), Contains("matched_end is 1, maximum 0"));
}

TEST_CASE("a match that was passed on is refused where its parts do not fit", "[unit][schema]") {
  RandomMessages random(4);
  msg::PassedMatch match;
  match.model = std::get<msg::RegisterModel>(random.request(0).body).model;
  match.match.matched_tokens = 3;
  match.tokens = {1, 2, 3};
  REQUIRE(decode_passed_match(encode(match)).value() == match);
  const auto refused = [&] {
    const auto decoded = decode_passed_match(encode(match));
    REQUIRE(decoded.status().code() == StatusCode::kInvalidArgument);
    return decoded.status().message();
  };
  match.tokens.pop_back();
  CHECK_THAT(refused(), Contains("tokens has 2 elements, of 3 that matched"));
  match.tokens.clear();
  match.align = 0;
  CHECK_THAT(refused(), Contains("align is 0"));
  match.align = 1;
  match.model.head_dim = 0;
  CHECK_THAT(refused(), Contains("model: "));
}

TEST_CASE("the id of a request that is refused can still be read", "[unit][schema]") {
  const auto refused = encode(msg::Request{77, msg::ShowSession{std::string(300, 'n')}});
  REQUIRE_FALSE(decode_request(refused).ok());
  REQUIRE(request_id(refused) == 77u);
  REQUIRE_FALSE(request_id(Bytes(refused).first(8)).has_value());
  REQUIRE_FALSE(request_id({}).has_value());
}

}  // namespace
}  // namespace precis
