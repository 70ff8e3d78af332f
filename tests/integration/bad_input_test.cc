// Bad input gets a clear Status, and the service keeps serving.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "precis/greeting.h"
#include "precis/limits.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/raw_peer.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20250615, kTokens = 100;

class BadInputFixture {
 protected:
  TempDir dir;
  ServiceProcess service{dir};
  std::shared_ptr<Client> client = service.connect();
  Model model = client->register_model(tiny_model()).value();
  std::mt19937 random{kSeed};
  std::vector<TokenId> tokens = random_tokens(random, kTokens);
  Kv kv = random_kv(random, model.spec, 0, kTokens);

  static PutOptions options(const std::string& recipe = "keydiff",
                            const Budget& keep = Budget::ratio_ppm(500'000)) {
    PutOptions result;
    result.recipe = recipe;
    result.keep = keep;
    return result;
  }

  // The client that misbehaved and another one store and read a new path; nothing is left over.
  void check_still_serving() {
    const auto other = service.connect();
    for (Client* c : {client.get(), other.get()}) {
      const auto path = random_tokens(random, kTokens);
      const auto stored = put_all(*c, model, path, kv, options());
      INFO(stored.status().to_string());
      REQUIRE(stored.ok());
      CHECK(rows_are_of(read_all(*c, model, path).value(), {&kv}));
    }
    CHECK(stat(*client, "precis_open_puts") == 0);
    CHECK(stat(*client, "precis_staged_bytes") == 0);
  }
};

TEST_CASE_METHOD(BadInputFixture, "a put with bad tokens, recipe or budget does not begin",
                 "[integration]") {
  const auto refused = [&](const PutOptions& o) {
    const Status status = client->begin_put(model, tokens, o).status();
    INFO(status.to_string());
    CHECK(status.code() == StatusCode::kInvalidArgument);
    return status.message();
  };
  CHECK(refused(options("no_such_preset")).find("ada_keydiff") != std::string::npos);
  refused(options("ada_snapkv(window=-1)"));
  refused(options("{\"scorer\": 7"));
  refused(options("keydiff", Budget::ratio_ppm(0)));
  refused(options("keydiff", Budget::ratio_ppm(1'000'001)));
  refused(options("keydiff", Budget::entries(0)));
  refused(options("keydiff", Budget::bytes(0)));
  CHECK(Budget::ratio(0.0).status().code() == StatusCode::kInvalidArgument);
  CHECK(Budget::ratio(1.5).status().code() == StatusCode::kInvalidArgument);
  CHECK(client->begin_put(model, {}).status().code() == StatusCode::kInvalidArgument);
  Model unknown = model;
  unknown.fingerprint = Digest{};
  CHECK(client->begin_put(unknown, tokens).status().code() == StatusCode::kNotFound);
  PutOptions orphan = options();
  orphan.parent = parse_segment_id(std::string(32, 'a')).value();
  CHECK(client->begin_put(model, tokens, orphan).status().code() == StatusCode::kNotFound);
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "the client refuses a wrong push, and the put leaves no trace",
                 "[integration]") {
  LayerPush push = kv.layers[0].push();
  std::uint32_t layer = 0;
  SECTION("shape") { push.keys.num_heads = push.values.num_heads = 1, push.head_begin = 2; }
  SECTION("dtype") { push.keys.dtype = push.values.dtype = Dtype::kBf16; }
  SECTION("layer") { layer = model.spec.num_layers; }
  SECTION("tokens") { push.keys.num_tokens = push.values.num_tokens = kTokens + 1; }
  Put put = client->begin_put(model, tokens, options()).value();
  REQUIRE(put.layer(1, kv.layers[1].push()).ok());
  const Status status = put.layer(layer, push);
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(put.commit().status().code() == StatusCode::kInvalidArgument);
  CHECK_FALSE(client->lookup(model, tokens).value());
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "a second push of a layer is refused", "[integration]") {
  Put put = client->begin_put(model, tokens, options()).value();
  REQUIRE(put.layer(2, kv.layers[2].push()).ok());
  CHECK(put.layer(2, kv.layers[2].push()).code() == StatusCode::kInvalidArgument);
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "a NaN or an infinity pushed is named by layer, head and token",
                 "[integration]") {
  const float bad =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  Tensor& tensor = GENERATE(0, 1) == 0 ? kv.layers[2].keys : kv.layers[2].values;
  const std::size_t at = (std::size_t{1} * kTokens + 57) * model.spec.head_dim + 3;
  std::byte before[sizeof bad];
  std::memcpy(before, tensor.bytes.data() + at * sizeof bad, sizeof bad);
  std::memcpy(tensor.bytes.data() + at * sizeof bad, &bad, sizeof bad);
  const Status status = put_all(*client, model, tokens, kv, options()).status();
  INFO(status.to_string());
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find("layer 2") != std::string::npos);
  CHECK(status.message().find("head 1") != std::string::npos);
  CHECK(status.message().find("57") != std::string::npos);
  CHECK_FALSE(client->lookup(model, tokens).value());
  std::memcpy(tensor.bytes.data() + at * sizeof bad, before, sizeof bad);
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "a put that failed while its commit waited holds no memory",
                 "[integration]") {
  const std::uint32_t many = 20'000;
  Kv large = random_kv(random, model.spec, 0, many);
  LayerKv& last = large.layers.back();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(last.values.bytes.data() + last.values.bytes.size() - sizeof nan, &nan, sizeof nan);
  Put put = client->begin_put(model, random_tokens(random, many), options()).value();
  for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
    REQUIRE(put.start_layer(l, large.layers[l].push()).ok());
  }
  CHECK(put.commit().status().code() == StatusCode::kInvalidArgument);
  // The memory is freed although the client still has the put; bytes that the store is writing are
  // freed once written. If that never happens, this test's time limit ends it.
  while (stat(*client, "precis_staged_bytes") > 0) std::this_thread::yield();
}

TEST_CASE_METHOD(BadInputFixture,
                 "a budget of more entries than there is room for is not dealt out",
                 "[integration]") {
  ModelSpec vast = tiny_model();
  vast.name = "vast";
  vast.num_layers = vast.num_q_heads = vast.num_kv_heads = 1024;
  const Model of_many_heads = client->register_model(vast).value();
  const auto path = random_tokens(random, 4095);  // 2^32 entries, less a few
  const Status refused =
      client->begin_put(of_many_heads, path, options("pyramidkv", Budget::ratio_ppm(1'000'000)))
          .status();
  CHECK(refused.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(refused.message(), Catch::Contains("memory_bytes"));
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "a commit with layers missing names them", "[integration]") {
  {
    Put put = client->begin_put(model, tokens, options()).value();
    REQUIRE(put.layer(0, kv.layers[0].push()).ok());
    REQUIRE(put.layer(2, kv.layers[2].push()).ok());
    const Status status = put.commit().status();
    INFO(status.to_string());
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.message().find("layer 1, layer 3") != std::string::npos);
    CHECK_FALSE(client->lookup(model, tokens).value());
  }
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "a recipe's needs that were not pushed are named",
                 "[integration]") {
  const std::string recipe = GENERATE(std::string("snapkv"), std::string("external"));
  const auto begun = client->begin_put(model, tokens, options(recipe));
  if (begun.ok()) {  // A preset of that name need not exist.
    const Status status = put_all(*client, model, tokens, kv, options(recipe)).status();
    INFO(status.to_string());
    CHECK(status.code() == StatusCode::kInvalidArgument);
  }
  CHECK_FALSE(client->lookup(model, tokens).value());
}

TEST_CASE_METHOD(BadInputFixture, "the service refuses what a client without checks pushes",
                 "[integration]") {
  {
    RawPeer peer;
    REQUIRE(peer.connect(service.address()).value().status.ok());
    msg::BeginPut begin;
    begin.model = model.fingerprint;
    begin.tokens = tokens;
    begin.recipe = "keydiff";
    const auto begun = std::get<msg::PutBegun>(peer.call(begin).value().body);

    msg::PushLayer good;
    good.put = begun.put;
    good.head_count = model.spec.num_kv_heads;
    good.token_count = kTokens;
    good.dtype = model.spec.dtype;
    good.keys = peer.expose(kv.layers[0].keys.bytes.size());
    good.values = peer.expose(kv.layers[0].values.bytes.size());
    good.keys_head_stride = good.values_head_stride = kv.layers[0].keys.view.head_bytes();
    const auto refused = [&](const char* what, auto change,
                             StatusCode code = StatusCode::kInvalidArgument) {
      msg::PushLayer push = good;
      change(push);
      const auto reply = peer.call(push);
      REQUIRE(reply.ok());
      INFO(what << ": " << reply->status.to_string());
      CHECK(reply->status.code() == code);
    };
    refused("layer", [&](auto& p) { p.layer = model.spec.num_layers; });
    refused("dtype", [](auto& p) { p.dtype = Dtype::kBf16; });
    refused("heads", [](auto& p) { p.head_count = 3; });
    refused("head range", [](auto& p) { p.head_begin = UINT32_MAX; });
    refused("no tokens", [](auto& p) { p.token_count = 0; });
    refused("tokens", [](auto& p) { p.token_count = kTokens + 1; });
    refused("token range", [](auto& p) { p.token_begin = UINT32_MAX; });
    refused("stride", [](auto& p) { p.keys_head_stride = 1; });
    refused("stride past the region",
            [](auto& p) { p.values_head_stride = std::uint64_t{1} << 60; });
    refused("a region too small", [&](auto& p) { p.keys = peer.expose(64); });
    refused("queries out of nowhere", [](auto& p) { p.num_queries = 3; });
    refused(
        "a put that is not there", [](auto& p) { p.put += 1; }, StatusCode::kNotFound);
    REQUIRE(peer.call(good).value().status.ok());
    refused("a second time", [](auto&) {});
  }
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "the service refuses projections that a client did not check",
                 "[integration]") {
  {
    RawPeer peer;
    REQUIRE(peer.connect(service.address()).value().status.ok());
    constexpr std::uint32_t kWidth = 8;
    const std::size_t bytes =
        std::size_t{model.spec.num_q_heads} * model.spec.head_dim * kWidth * sizeof(float);
    const msg::PushProjection good{model.fingerprint, 0, kWidth, Dtype::kF32, peer.expose(bytes)};
    const auto refused = [&](const char* what, auto change) {
      msg::PushProjection push = good;
      change(push);
      const auto reply = peer.call(push);
      REQUIRE(reply.ok());
      INFO(what << ": " << reply->status.to_string());
      CHECK_FALSE(reply->status.ok());
      return reply->status.code();
    };
    const auto invalid = StatusCode::kInvalidArgument;
    CHECK(refused("layer", [&](auto& p) { p.layer = model.spec.num_layers; }) == invalid);
    CHECK(refused("width", [](auto& p) { p.width = 0; }) == invalid);
    CHECK(refused("more", [](auto& p) { p.width = kWidth + 1; }) == invalid);
    CHECK(refused("dtype", [](auto& p) { p.dtype = Dtype::kBf16; }) == invalid);
    CHECK(refused("8 bits", [](auto& p) { p.dtype = Dtype::kF8E4M3; }) == invalid);
    CHECK(refused("model", [](auto& p) { p.model = Digest{}; }) == StatusCode::kNotFound);
    refused("region", [](auto& p) { p.weights.id += 1000, p.weights.address = 64; });
  }
  CHECK(client->models().value().front().projections == 0);
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "a region that was never exposed ends the push, not the service",
                 "[integration]") {
  {
    RawPeer peer;
    REQUIRE(peer.connect(service.address()).value().status.ok());
    msg::BeginPut begin;
    begin.model = model.fingerprint;
    begin.tokens = tokens;
    const auto begun = std::get<msg::PutBegun>(peer.call(begin).value().body);
    msg::PushLayer push;
    push.put = begun.put;
    push.head_count = model.spec.num_kv_heads;
    push.token_count = kTokens;
    push.dtype = model.spec.dtype;
    push.keys_head_stride = push.values_head_stride = kv.layers[0].keys.view.head_bytes();
    push.keys = peer.expose(kv.layers[0].keys.bytes.size());
    push.values = push.keys;
    push.values.id += 1000;
    push.values.address = 64;
    const auto reply = peer.call(push);
    CHECK((!reply.ok() || !reply->status.ok()));
  }
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture,
                 "a message that does not decode is answered, and its client goes on",
                 "[integration]") {
  RawPeer peer;
  REQUIRE(peer.connect(service.address()).value().status.ok());
  for (const std::size_t size : {0u, 1u, 64u, 5000u}) {
    std::vector<std::byte> message(size);
    for (std::byte& b : message) b = static_cast<std::byte>(random() & 0xff);
    peer.send(message);
    const auto reply = peer.receive();
    REQUIRE(reply.ok());
    CHECK(reply->id == 0);
    CHECK(reply->status.code() == StatusCode::kInvalidArgument);
  }
  CHECK(peer.call(msg::GetStatus{}).value().status.ok());
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "an oversize message ends its connection alone",
                 "[integration]") {
  {
    RawPeer peer;
    REQUIRE(peer.connect(service.address()).value().status.ok());
    peer.send(std::vector<std::byte>(limits::kMessageBytesMax + 1));
    CHECK_FALSE(peer.wait_closed().ok());
  }
  const std::vector<TokenId> endless(limits::kPathTokensMax + 1, 1);
  CHECK(client->lookup(model, endless).status().code() == StatusCode::kInvalidArgument);
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "a path of more blocks than one may have is refused",
                 "[integration]") {
  ModelSpec spec = tiny_model();
  spec.block_tokens = 1;
  const Model fine = client->register_model(spec).value();
  std::vector<TokenId> path(limits::kPathBlocksMax, 1);
  CHECK(client->lookup(fine, path).status().ok());
  path.push_back(1);
  for (const Status& refused :
       {client->lookup(fine, path).status(), client->begin_put(fine, path, options()).status()}) {
    CHECK(refused.code() == StatusCode::kInvalidArgument);
    CHECK(refused.message() ==
          "262145 tokens in blocks of 1 are 262145 blocks, at most 262144 are allowed; use "
          "a larger block_tokens, at least 2, or a shorter path");
  }
  CHECK(client->lookup(model, path).status().ok());  // in blocks of 64
  check_still_serving();
}

// Sends bytes that a client never sends. Returns all that the service answers.
std::vector<std::byte> speak(const std::string& address, const std::vector<std::byte>& bytes) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
  PRECIS_CHECK(::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) == 1);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  PRECIS_CHECK(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(fd, SHUT_WR);
  std::vector<std::byte> heard;
  std::byte answer[4096];
  for (ssize_t got; (got = ::recv(fd, answer, sizeof answer, 0)) > 0;) {
    heard.insert(heard.end(), answer, answer + got);
  }
  ::close(fd);
  return heard;
}

std::vector<std::byte> frame(FrameKind kind, const std::vector<std::byte>& body) {
  const auto header = encode_frame_header({kind, static_cast<std::uint32_t>(body.size()), 0});
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

// The service's answer to a stranger's frame, which follows its challenge.
Result<Welcome> refusal_of(const std::vector<std::byte>& heard) {
  constexpr std::size_t kChallenge = FrameHeader::kBytes + 40;
  REQUIRE(heard.size() > kChallenge + FrameHeader::kBytes);
  const Bytes answer = Bytes(heard).subspan(kChallenge);
  const auto header = decode_frame_header(answer.first(FrameHeader::kBytes));
  REQUIRE(header.ok());
  CHECK(header->kind == FrameKind::kRefusal);
  CHECK(header->size_bytes == answer.size() - FrameHeader::kBytes);  // and nothing after it
  return decode_welcome(answer.subspan(FrameHeader::kBytes));
}

TEST_CASE_METHOD(BadInputFixture, "another protocol version is refused, naming both",
                 "[integration]") {
  Hello hello;
  hello.protocol_version = 99;
  const auto reply = refusal_of(speak(service.address(), frame(FrameKind::kHello, encode(hello))));
  REQUIRE(reply.ok());
  INFO(reply->status.to_string());
  CHECK(reply->status.code() == StatusCode::kVersionMismatch);
  CHECK(reply->status.message().find("99") != std::string::npos);
  CHECK(reply->protocol_version == kProtocolVersion);
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "a greeting that is none is refused", "[integration]") {
  const std::vector<std::byte> noise(200, std::byte{0xa5});
  for (const FrameKind kind : {FrameKind::kHello, FrameKind::kBind}) {
    const auto reply = refusal_of(speak(service.address(), frame(kind, noise)));
    REQUIRE(reply.ok());
    CHECK(reply->status.code() == StatusCode::kInvalidArgument);
  }
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "nothing is heard of a stranger before its greeting",
                 "[integration]") {
  const double connections = stat(*client, "precis_connections_total");
  const auto models = frame(FrameKind::kMessage, encode(msg::Request{1, msg::ListModels{}}));
  const auto heard = speak(service.address(), models);
  CHECK(std::string(reinterpret_cast<const char*>(heard.data()), heard.size())
            .find(model.spec.name) == std::string::npos);
  // A size that a stranger may not name: no memory is allocated for it.
  const auto header = encode_frame_header({FrameKind::kHello, 1u << 30, 0});
  speak(service.address(), {header.begin(), header.end()});
  CHECK(stat(*client, "precis_connections_total") == connections);
  check_still_serving();
}

TEST_CASE_METHOD(BadInputFixture, "random bytes on the port disturb nobody", "[integration]") {
  CAPTURE(kSeed);
  for (const std::size_t size : {0u, 1u, 31u, 32u, 33u, 1000u, 1'000'000u}) {
    std::vector<std::byte> bytes(size);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xff);
    speak(service.address(), bytes);
  }
  check_still_serving();
}

}  // namespace
