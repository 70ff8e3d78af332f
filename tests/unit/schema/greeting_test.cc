// Greetings of two processes: messages round-trip, and other bytes are refused.
#include "precis/greeting.h"

#include <catch2/catch.hpp>
#include <functional>
#include <set>

#include "precis/limits.h"
#include "tests/unit/schema/random_messages.h"

namespace precis {
namespace {

using Catch::Matchers::Contains;
using testing::RandomMessages;

// A message and its decoder, which returns whether the decoded message is equal.
struct Sample {
  std::string name;
  std::vector<std::byte> bytes;
  std::function<Result<bool>(Bytes)> decode;
};

template <auto kDecode, typename T>
Sample sample(const std::string& name, const T& message) {
  return {name, encode(message), [message](Bytes bytes) -> Result<bool> {
            const auto decoded = kDecode(bytes);
            PRECIS_TRY(decoded.status());
            return *decoded == message;
          }};
}

std::vector<Sample> samples(std::uint64_t seed) {
  RandomMessages random(seed);
  return {sample<decode_challenge>("challenge", random.challenge()),
          sample<decode_hello>("hello", random.hello()),
          sample<decode_welcome>("welcome", random.welcome()),
          sample<decode_bind>("bind", random.bind())};
}

// Copies to a heap block of exact size, so the sanitizer detects reads past the end.
Result<bool> decode_copy(const Sample& sample, Bytes bytes) {
  const std::vector<std::byte> copy(bytes.begin(), bytes.end());
  return sample.decode(copy);
}

TEST_CASE("greetings round-trip with random content", "[unit][schema]") {
  const auto seed = GENERATE(range<std::uint64_t>(1, 21));
  CAPTURE(seed);
  for (const Sample& sample : samples(seed)) {
    CAPTURE(sample.name);
    const auto same = decode_copy(sample, sample.bytes);
    REQUIRE(same.status() == Status());
    REQUIRE(*same);
  }
}

TEST_CASE("the largest greeting fits what a stranger may say", "[unit][schema]") {
  const std::string longest(limits::kNameBytesMax, 'n');
  Hello hello{kProtocolVersion, longest, longest, {}, {}};
  REQUIRE(encode(hello).size() <= limits::kHelloBytesMax);
  REQUIRE(decode_hello(encode(hello)).value() == hello);
  REQUIRE(encode(Bind{}).size() <= limits::kHelloBytesMax);
  Welcome welcome;
  welcome.status = Status::internal(std::string(2 * limits::kTextBytesMax, 'x'));
  welcome.protocol_version = kProtocolVersion;
  welcome.server = longest;
  welcome.unix_path = std::string(limits::kTextBytesMax, 'p');
  REQUIRE(encode(welcome).size() <= limits::kWelcomeBytesMax);
  const auto decoded = decode_welcome(encode(welcome));
  REQUIRE(decoded.status() == Status());
  REQUIRE(decoded->status.message() == std::string(limits::kTextBytesMax, 'x'));
}

TEST_CASE("a greeting cut at any length is refused", "[unit][schema]") {
  for (const Sample& sample : samples(11)) {
    CAPTURE(sample.name);
    for (std::size_t size = 0; size < sample.bytes.size(); ++size) {
      CAPTURE(size);
      const Status status = decode_copy(sample, Bytes(sample.bytes).first(size)).status();
      REQUIRE(status.code() == StatusCode::kInvalidArgument);
      REQUIRE_THAT(status.message(), Contains(sample.name));
    }
  }
}

TEST_CASE("bytes after a greeting are refused, but those of another version's", "[unit][schema]") {
  for (Sample& sample : samples(12)) {
    CAPTURE(sample.name);
    sample.bytes.push_back({});
    const Status status = decode_copy(sample, sample.bytes).status();
    if (sample.name == "challenge") {
      REQUIRE(status.ok());
    } else {
      REQUIRE_THAT(status.message(), Contains("bytes that do not belong to it"));
    }
  }
}

TEST_CASE("a greeting with any one bit flipped is another one or is refused", "[unit][schema]") {
  for (Sample& sample : samples(13)) {
    CAPTURE(sample.name);
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < sample.bytes.size() * 8; ++bit) {
      CAPTURE(bit);
      const auto mask = static_cast<std::byte>(1 << bit % 8);
      sample.bytes[bit / 8] ^= mask;
      const auto same = decode_copy(sample, sample.bytes);
      if (same.ok()) {
        REQUIRE_FALSE(*same);
      } else {
        ++refused;
        REQUIRE(same.status().code() == StatusCode::kInvalidArgument);
        REQUIRE_FALSE(same.status().message().empty());
      }
      sample.bytes[bit / 8] ^= mask;
    }
    REQUIRE(refused >= 32);  // bits of the magic
  }
}

TEST_CASE("random bytes are no greeting", "[unit][schema]") {
  RandomMessages random(14);
  for (int round = 0; round < 2000; ++round) {
    const auto bytes = random.bytes(random.number(256));
    REQUIRE(decode_challenge(bytes).status().code() == StatusCode::kInvalidArgument);
    REQUIRE(decode_hello(bytes).status().code() == StatusCode::kInvalidArgument);
    REQUIRE(decode_welcome(bytes).status().code() == StatusCode::kInvalidArgument);
    REQUIRE(decode_bind(bytes).status().code() == StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a peer that does not speak Precis is told so", "[unit][schema]") {
  const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(200, ' ');
  const auto text = std::as_bytes(std::span(http));
  const std::vector<Status> all{decode_challenge(text).status(), decode_hello(text).status(),
                                decode_welcome(text).status(), decode_bind(text).status()};
  for (const Status& status : all) CHECK_THAT(status.message(), Contains("does not speak Precis"));
}

TEST_CASE("a hello of another version is read for its version alone", "[unit][schema]") {
  Hello hello{kProtocolVersion + 7, "names may follow other rules there", "x", make_nonce(), {}};
  auto bytes = encode(hello);
  bytes.resize(bytes.size() / 2);
  for (const std::size_t size : {bytes.size(), std::size_t{8}}) {
    const auto decoded = decode_hello(Bytes(bytes).first(size));
    REQUIRE(decoded.status() == Status());
    Hello version_alone;
    version_alone.protocol_version = kProtocolVersion + 7;
    REQUIRE(*decoded == version_alone);
  }
}

TEST_CASE("a challenge and a welcome of another version are read", "[unit][schema]") {
  RandomMessages random(15);
  Challenge challenge = random.challenge();
  challenge.protocol_version = kProtocolVersion + 7;
  REQUIRE(decode_challenge(encode(challenge)).value() == challenge);
  Welcome refusal;
  refusal.protocol_version = kProtocolVersion + 7;
  refusal.status = Status::version("protocol 2 is not spoken");
  REQUIRE(decode_welcome(encode(refusal)).value() == refusal);
}

TEST_CASE("a greeting past a limit is refused with the field's name and the limit",
          "[unit][schema]") {
  const std::string too_long(limits::kNameBytesMax + 1, 'n');
  Hello hello{kProtocolVersion, "", too_long, {}, {}};
  CHECK_THAT(decode_hello(encode(hello)).status().message(),
             Contains("tenant has 257 B, the limit is 256 B"));
  hello = {kProtocolVersion, too_long, "", {}, {}};
  CHECK_THAT(decode_hello(encode(hello)).status().message(),
             Contains("client has 257 B, the limit is 256 B"));
  Welcome welcome;
  welcome.server = too_long;
  CHECK_THAT(decode_welcome(encode(welcome)).status().message(), Contains("server has 257 B"));
  welcome.server.clear();
  welcome.unix_path = std::string(limits::kTextBytesMax + 1, 'p');
  CHECK_THAT(decode_welcome(encode(welcome)).status().message(), Contains("unix_path has 4097 B"));
}

// ---- proofs

TEST_CASE("a client's proof is another one for each thing that it proves", "[unit][schema]") {
  const Nonce challenge = make_nonce(), other = make_nonce();
  const Hello hello{kProtocolVersion, "client", "tenant", make_nonce(), {}};
  std::set<Proof> proofs;
  const auto add = [&](const std::string& token, const Nonce& to, const Hello& of) {
    CHECK(client_proof(token, to, of) == client_proof(token, to, of));
    CHECK(proofs.insert(client_proof(token, to, of)).second);
  };
  add("token", challenge, hello);
  add("tokem", challenge, hello);
  add("", challenge, hello);
  add("token", other, hello);
  Hello changed = hello;
  changed.nonce = other;
  add("token", challenge, changed);
  changed = hello;
  changed.tenant = "tenan";
  add("token", challenge, changed);
  changed = hello;
  changed.client = "client2";
  add("token", challenge, changed);
  changed = {kProtocolVersion, "tclient", "tenan", hello.nonce, {}};  // the same letters in a row
  add("token", challenge, changed);
  changed = hello;
  changed.proof[0] = std::byte{1};  // not covered by the proof
  CHECK(client_proof("token", challenge, changed) == client_proof("token", challenge, hello));
}

TEST_CASE("a server's proof and the key for binding are others for each thing they are of",
          "[unit][schema]") {
  const Nonce challenge = make_nonce(), other = make_nonce();
  const Hello hello{kProtocolVersion, "client", "tenant", make_nonce(), {}};
  Welcome welcome;
  welcome.connection = 7;
  welcome.secret = make_nonce();
  welcome.unix_path = "/run/precis.sock";
  std::set<Proof> proofs{client_proof("token", challenge, hello)};
  const auto add = [&](const std::string& token, const Nonce& to, const Hello& of,
                       const Welcome& with, bool also_key = true) {
    CHECK(proofs.insert(server_proof(token, to, of, with)).second);
    if (also_key) CHECK(proofs.insert(bind_key(token, to, of, with)).second);
  };
  add("token", challenge, hello, welcome);
  add("", challenge, hello, welcome);
  add("token", other, hello, welcome);
  Hello changed = hello;
  changed.nonce = other;
  add("token", challenge, changed, welcome);
  Welcome secret = welcome, path = welcome, number = welcome, rdma = welcome, clustered = welcome;
  secret.secret = other;
  add("token", challenge, hello, secret);
  path.unix_path = "/run/other.sock";
  add("token", challenge, hello, path, false);
  number.connection = 8;
  add("token", challenge, hello, number, false);
  rdma.rdma = true;
  add("token", challenge, hello, rdma, false);
  clustered.clustered = true;
  add("token", challenge, hello, clustered, false);

  const Proof key = bind_key("token", challenge, hello, welcome);
  CHECK(proofs.insert(bind_proof(key, challenge, 7)).second);
  CHECK(proofs.insert(bind_proof(key, other, 7)).second);
  CHECK(proofs.insert(bind_proof(key, challenge, 8)).second);
  CHECK(
      proofs.insert(bind_proof(bind_key("tokem", challenge, hello, welcome), challenge, 7)).second);
}

TEST_CASE("nonces are never the same", "[unit][schema]") {
  std::set<Nonce> nonces{Nonce{}};
  for (int i = 0; i < 1000; ++i) REQUIRE(nonces.insert(make_nonce()).second);
}

TEST_CASE("proofs are compared in all of their bytes", "[unit][schema]") {
  const Proof proof = make_nonce();
  CHECK(equal_in_constant_time(proof, proof));
  for (std::size_t i = 0; i < proof.size(); ++i) {
    Proof other = proof;
    other[i] ^= std::byte{0x80};
    CHECK_FALSE(equal_in_constant_time(proof, other));
  }
  CHECK_FALSE(equal_in_constant_time(proof, Bytes(proof).first(31)));
  CHECK(equal_in_constant_time({}, {}));
}

}  // namespace
}  // namespace precis
