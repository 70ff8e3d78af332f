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

// The length precedes each part, so two different lists of parts never give the same bytes.
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

// fields() describes each message once: a Writer writes the fields, a Reader reads them.
class Writer {
 public:
  template <std::unsigned_integral T>
  void number(T value) {
    put_le(bytes, value);
  }
  void flag(const char*, bool value) { number(static_cast<std::uint8_t>(value ? 1 : 0)); }
  void array(Bytes value) { put_bytes(bytes, value); }
  void text(const char*, std::string_view value, std::size_t) {
    number(static_cast<std::uint16_t>(value.size()));
    put_bytes(bytes, bytes_of(value));
  }
  void status(const Status& status) {
    number(static_cast<std::uint8_t>(status.code()));
    number(status.retry_after_ms());
    text("", std::string_view(status.message()).substr(0, limits::kTextBytesMax), 0);
  }
  void magic() { number(kMagic); }
  bool goes_on(bool) const { return true; }

  std::vector<std::byte> bytes;
};

// status_ keeps the first error.
class Reader {
 public:
  Reader(const char* message, Bytes bytes) : message_(message), in_(bytes) {}

  template <std::unsigned_integral T>
  void number(T& value) {
    value = in_.get<T>();
  }
  void flag(const char* field, bool& value) {
    const auto number = in_.get<std::uint8_t>();
    if (number > 1) wrong(std::string(field) + " must be 0 or 1");
    value = number == 1;
  }
  template <std::size_t kSize>
  void array(std::array<std::byte, kSize>& value) {
    std::ranges::copy(in_.take(kSize), value.begin());
  }
  void text(const char* field, std::string& value, std::size_t bytes_max) {
    const std::size_t size = in_.get<std::uint16_t>();
    const Bytes taken = in_.take(size);
    if (size > bytes_max) {
      wrong(std::string(field) + " has " + std::to_string(size) + " B, the limit is " +
            std::to_string(bytes_max) + " B");
    }
    value.assign(reinterpret_cast<const char*>(taken.data()), taken.size());
  }
  void status(Status& status) {
    const auto code = in_.get<std::uint8_t>();
    const auto retry_after_ms = in_.get<std::uint32_t>();
    std::string message;
    text("message", message, limits::kTextBytesMax);
    if (code > kStatusCodeMax) {
      return wrong("status code " + std::to_string(code) + " does not exist");
    }
    status = Status(static_cast<StatusCode>(code), message, retry_after_ms);
    if (retry_after_ms != 0 && !may_have_retry_after(status.code())) {
      wrong("retry_after_ms is set for a code that has none");
    }
  }
  void magic() {
    if (in_.get<std::uint32_t>() != kMagic) wrong("the peer does not speak Precis");
  }
  // `is_known`: the rest of the message has a known form. If not, the rest is not read.
  bool goes_on(bool is_known) {
    is_known_ = is_known || !in_.ok();
    return is_known_;
  }
  // `whole`: no bytes may follow the message.
  Status finish(bool whole) {
    if (!in_.ok()) wrong("is cut short");
    if (whole && is_known_ && !in_.rest().empty()) {
      wrong("is followed by bytes that do not belong to it");
    }
    return status_;
  }

 private:
  void wrong(const std::string& what) {
    if (status_.ok()) status_ = Status::invalid(std::string(message_) + ": " + what);
  }

  const char* message_;
  LeReader in_;
  bool is_known_ = true;
  Status status_;
};

void fields(auto& f, Challenge& m) {
  f.magic();
  f.number(m.protocol_version);
  f.array(m.nonce);
}
void fields(auto& f, Hello& m) {
  f.magic();
  f.number(m.protocol_version);
  if (!f.goes_on(m.protocol_version == kProtocolVersion)) return;
  f.array(m.nonce);
  f.array(m.proof);
  f.text("tenant", m.tenant, limits::kNameBytesMax);
  f.text("client", m.client, limits::kNameBytesMax);
}
void fields(auto& f, Welcome& m) {
  f.magic();
  f.number(m.protocol_version);
  f.status(m.status);
  f.text("server", m.server, limits::kNameBytesMax);
  f.flag("keyed", m.keyed);
  f.number(m.connection);
  f.array(m.secret);
  f.array(m.proof);
  f.text("unix_path", m.unix_path, limits::kTextBytesMax);
  f.flag("rdma", m.rdma);
  f.flag("clustered", m.clustered);
}
void fields(auto& f, Bind& m) {
  f.magic();
  f.number(m.connection);
  f.array(m.proof);
}
void fields(auto& f, RdmaTurn& m) {
  f.magic();
  f.text("device", m.device, limits::kRdmaAddressBytesMax);
  f.text("endpoint", m.endpoint, limits::kRdmaAddressBytesMax);
  f.number(m.window);
  f.text("window_key", m.window_key, limits::kRdmaAddressBytesMax);
}

template <typename Message>
std::vector<std::byte> written(Message message) {
  Writer out;
  fields(out, message);
  return std::move(out.bytes);
}

template <typename Message>
Result<Message> read(const char* name, Bytes bytes, bool whole = true) {
  Reader in(name, bytes);
  Message message;
  fields(in, message);
  PRECIS_TRY(in.finish(whole));
  return message;
}

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
  put_le(connection, static_cast<std::uint8_t>(welcome.clustered ? 1 : 0));
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

std::vector<std::byte> encode(const Challenge& challenge) { return written(challenge); }
std::vector<std::byte> encode(const Hello& hello) { return written(hello); }
std::vector<std::byte> encode(const Welcome& welcome) { return written(welcome); }
std::vector<std::byte> encode(const Bind& bind) { return written(bind); }
std::vector<std::byte> encode(const RdmaTurn& turn) { return written(turn); }

Result<Challenge> decode_challenge(Bytes bytes) {
  return read<Challenge>("challenge", bytes, /*whole=*/false);  // other versions may have more
}
Result<Hello> decode_hello(Bytes bytes) { return read<Hello>("hello", bytes); }
Result<Welcome> decode_welcome(Bytes bytes) { return read<Welcome>("welcome", bytes); }
Result<Bind> decode_bind(Bytes bytes) { return read<Bind>("bind", bytes); }
Result<RdmaTurn> decode_rdma_turn(Bytes bytes) { return read<RdmaTurn>("RDMA turn", bytes); }

}  // namespace precis
