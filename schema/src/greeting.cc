#include "precis/greeting.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <initializer_list>
#include <span>

#include "precis/limits.h"
#include "precis/little_endian.h"

namespace precis {
namespace {

constexpr std::uint32_t kMagic = 0x4c435250;  // "PRCL"

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// Each part behind its length, so that no two lists of parts are the same bytes.
Proof hmac(std::string_view key, std::string_view purpose, std::initializer_list<Bytes> parts) {
  std::vector<std::byte> message;
  put_bytes(message, bytes_of(purpose));
  for (const Bytes part : parts) {
    put_le(message, static_cast<std::uint64_t>(part.size()));
    put_bytes(message, part);
  }
  Proof proof{};
  unsigned size = 0;
  const auto* const done =
      ::HMAC(::EVP_sha256(), key.data() != nullptr ? key.data() : "", static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(),
             reinterpret_cast<unsigned char*>(proof.data()), &size);
  PRECIS_CHECK(done != nullptr && size == proof.size());
  return proof;
}

std::string_view as_key(const Proof& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
  put_le(out, static_cast<std::uint16_t>(text.size()));
  put_bytes(out, bytes_of(text));
}

// Reads what the put functions wrote; the first thing that is wrong is its status.
class Reader {
 public:
  Reader(const char* message, Bytes bytes) : message_(message), in_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    return in_.get<T>();
  }
  template <std::size_t kSize>
  void array(std::array<std::byte, kSize>& into) {
    const Bytes taken = in_.take(kSize);
    std::copy(taken.begin(), taken.end(), into.begin());
  }
  std::string text(const char* field, std::size_t bytes_max) {
    const std::size_t size = in_.get<std::uint16_t>();
    const Bytes taken = in_.take(size);
    if (size > bytes_max) {
      wrong(std::string(field) + " has " + std::to_string(size) + " B, the limit is " +
            std::to_string(bytes_max) + " B");
    }
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  void wrong(const std::string& what) {
    if (status_.ok()) status_ = Status::invalid(std::string(message_) + ": " + what);
  }
  // `whole`: nothing may follow.
  Status finish(bool whole = true) {
    if (!in_.ok()) wrong("is cut short");
    if (whole && !in_.rest().empty()) wrong("is followed by bytes that do not belong to it");
    return status_;
  }
  void magic() {
    if (number<std::uint32_t>() != kMagic) wrong("the peer does not speak Precis");
  }

 private:
  const char* message_;
  LeReader in_;
  Status status_;
};

}  // namespace

Nonce make_nonce() {
  Nonce nonce{};
  PRECIS_CHECK(::RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), nonce.size()) == 1);
  return nonce;
}

bool equal_in_constant_time(Bytes a, Bytes b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Proof client_proof(std::string_view token, const Nonce& challenge, const Hello& hello) {
  return hmac(token, "precis client",
              {challenge, hello.nonce, bytes_of(hello.tenant), bytes_of(hello.client)});
}

Proof server_proof(std::string_view token, const Nonce& challenge, const Hello& hello,
                   const Welcome& welcome) {
  std::vector<std::byte> connection;
  put_le(connection, welcome.connection);
  put_le(connection, static_cast<std::uint8_t>(welcome.rdma ? 1 : 0));
  return hmac(token, "precis server",
              {challenge, hello.nonce, connection, welcome.secret, bytes_of(welcome.unix_path)});
}

Proof bind_key(std::string_view token, const Nonce& challenge, const Hello& hello,
               const Welcome& welcome) {
  return hmac(token, "precis bind key", {challenge, hello.nonce, welcome.secret});
}

Proof bind_proof(const Proof& key, const Nonce& challenge, std::uint64_t connection) {
  std::vector<std::byte> number;
  put_le(number, connection);
  return hmac(as_key(key), "precis bind", {challenge, number});
}

std::vector<std::byte> encode(const Challenge& challenge) {
  std::vector<std::byte> out;
  put_le(out, kMagic);
  put_le(out, challenge.protocol_version);
  put_bytes(out, challenge.nonce);
  return out;
}

Result<Challenge> decode_challenge(Bytes bytes) {
  Reader in("challenge", bytes);
  Challenge challenge;
  in.magic();
  challenge.protocol_version = in.number<std::uint32_t>();
  in.array(challenge.nonce);
  PRECIS_TRY(in.finish(/*whole=*/false));  // another version may say more
  return challenge;
}

std::vector<std::byte> encode(const Hello& hello) {
  std::vector<std::byte> out;
  put_le(out, kMagic);
  put_le(out, hello.protocol_version);
  put_bytes(out, hello.nonce);
  put_bytes(out, hello.proof);
  put_text(out, hello.tenant);
  put_text(out, hello.client);
  return out;
}

Result<Hello> decode_hello(Bytes bytes) {
  Reader in("hello", bytes);
  Hello hello;
  in.magic();
  hello.protocol_version = in.number<std::uint32_t>();
  PRECIS_TRY(in.finish(/*whole=*/false));
  if (hello.protocol_version != kProtocolVersion) return hello;
  in.array(hello.nonce);
  in.array(hello.proof);
  hello.tenant = in.text("tenant", limits::kNameBytesMax);
  hello.client = in.text("client", limits::kNameBytesMax);
  PRECIS_TRY(in.finish());
  return hello;
}

std::vector<std::byte> encode(const Welcome& welcome) {
  std::vector<std::byte> out;
  put_le(out, kMagic);
  put_le(out, welcome.protocol_version);
  put_le(out, static_cast<std::uint8_t>(welcome.status.code()));
  put_le(out, welcome.status.retry_after_ms());
  put_text(out, std::string_view(welcome.status.message()).substr(0, limits::kTextBytesMax));
  put_text(out, welcome.server);
  put_le(out, static_cast<std::uint8_t>(welcome.keyed ? 1 : 0));
  put_le(out, welcome.connection);
  put_bytes(out, welcome.secret);
  put_bytes(out, welcome.proof);
  put_text(out, welcome.unix_path);
  put_le(out, static_cast<std::uint8_t>(welcome.rdma ? 1 : 0));
  return out;
}

Result<Welcome> decode_welcome(Bytes bytes) {
  Reader in("welcome", bytes);
  Welcome welcome;
  in.magic();
  welcome.protocol_version = in.number<std::uint32_t>();
  const auto code = in.number<std::uint8_t>();
  const auto retry_after_ms = in.number<std::uint32_t>();
  std::string message = in.text("message", limits::kTextBytesMax);
  if (code > kStatusCodeMax) in.wrong("status code " + std::to_string(code) + " does not exist");
  if (retry_after_ms != 0 && code != static_cast<std::uint8_t>(StatusCode::kRejected)) {
    in.wrong("retry_after_ms belongs to a rejection alone");
  }
  welcome.server = in.text("server", limits::kNameBytesMax);
  const auto keyed = in.number<std::uint8_t>();
  if (keyed > 1) in.wrong("keyed must be 0 or 1");
  welcome.keyed = keyed == 1;
  welcome.connection = in.number<std::uint64_t>();
  in.array(welcome.secret);
  in.array(welcome.proof);
  welcome.unix_path = in.text("unix_path", limits::kTextBytesMax);
  const auto rdma = in.number<std::uint8_t>();
  if (rdma > 1) in.wrong("rdma must be 0 or 1");
  welcome.rdma = rdma == 1;
  PRECIS_TRY(in.finish());
  const auto status = static_cast<StatusCode>(code);
  welcome.status = status == StatusCode::kRejected
                       ? Status::rejected(std::move(message), retry_after_ms)
                       : Status(status, std::move(message));
  return welcome;
}

std::vector<std::byte> encode(const Bind& bind) {
  std::vector<std::byte> out;
  put_le(out, kMagic);
  put_le(out, bind.connection);
  put_bytes(out, bind.proof);
  return out;
}

Result<Bind> decode_bind(Bytes bytes) {
  Reader in("bind", bytes);
  Bind bind;
  in.magic();
  bind.connection = in.number<std::uint64_t>();
  in.array(bind.proof);
  PRECIS_TRY(in.finish());
  return bind;
}

std::vector<std::byte> encode(const RdmaTurn& turn) {
  std::vector<std::byte> out;
  put_le(out, kMagic);
  put_text(out, turn.device);
  put_text(out, turn.endpoint);
  put_le(out, turn.window);
  put_text(out, turn.window_key);
  return out;
}
Result<RdmaTurn> decode_rdma_turn(Bytes bytes) {
  Reader in("RDMA turn", bytes);
  RdmaTurn turn;
  in.magic();
  turn.device = in.text("device", limits::kRdmaAddressBytesMax);
  turn.endpoint = in.text("endpoint", limits::kRdmaAddressBytesMax);
  turn.window = in.number<std::uint64_t>();
  turn.window_key = in.text("window_key", limits::kRdmaAddressBytesMax);
  PRECIS_TRY(in.finish());
  return turn;
}

}  // namespace precis
