// How two processes meet (frames.h tells the order): who the client is, that both know its tenant's
// token, and how further sockets are bound to the connection.
//
// No token travels. The server sends a nonce, the client answers with an HMAC-SHA256 under the
// token over both nonces and what it says of itself; the server's answer carries one of its own, so
// an impostor that lacks the token is found out. Bind sockets by a key that both derive from the
// token and from a secret of the Welcome: an eavesdropper cannot bind where the tenant has a token.
// Every proof is over a fresh nonce: none is accepted twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "precis/frames.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;  // an HMAC-SHA256

// From the system's source of random numbers.
Nonce make_nonce();

// What a client says to be let in.
struct Login {
  std::string client;  // name and version, for the service's log
  std::string tenant;  // empty: the default tenant
  std::string token;   // empty: none; stays in the client
};

// The first word of the server on every socket.
struct Challenge {
  std::uint32_t protocol_version = 0;
  Nonce nonce{};
  bool operator==(const Challenge&) const = default;
};

struct Hello {
  std::uint32_t protocol_version = 0;
  std::string client, tenant;  // at most limits::kNameBytesMax each
  Nonce nonce{};
  Proof proof{};  // client_proof()
  bool operator==(const Hello&) const = default;
};

// The answer, kWelcome where `status` is OK and kRefusal where it is not: then the rest is empty.
struct Welcome {
  Status status;
  std::uint32_t protocol_version = 0;
  std::string server;            // name and version
  bool keyed = false;            // the tenant has a token, and the proofs are under it
  std::uint64_t connection = 0;  // named in Bind
  Nonce secret{};
  Proof proof{};          // server_proof()
  std::string unix_path;  // a Unix socket of the same service for Bind; empty: none
  bool rdma = false;      // the server answers RdmaTurns
  bool operator==(const Welcome&) const = default;
};

struct Bind {
  std::uint64_t connection = 0;
  Proof proof{};  // bind_proof()
  bool operator==(const Bind&) const = default;
};

// How an admitted client and its server join RDMA connections (cachesvc/net/rdma/rdma.h). The
// client names its end and the server answers with its own, empty where it can't; then the client
// names its window (cachesvc/net/shared_window.h), and transfers may begin. No key to server memory
// travels. Each part has at most limits::kRdmaAddressBytesMax.
struct RdmaTurn {
  std::string device, endpoint;
  std::uint64_t window = 0;  // its address
  std::string window_key;    // of the third turn alone
  bool operator==(const RdmaTurn&) const = default;
};

// `token` is empty where the tenant has none.
Proof client_proof(std::string_view token, const Nonce& challenge, const Hello& hello);
Proof server_proof(std::string_view token, const Nonce& challenge, const Hello& hello,
                   const Welcome& welcome);
// What both sides keep for Bind; `challenge` is of the control socket.
Proof bind_key(std::string_view token, const Nonce& challenge, const Hello& hello,
               const Welcome& welcome);
// `challenge` is of the socket to be bound.
Proof bind_proof(const Proof& key, const Nonce& challenge, std::uint64_t connection);
// Takes as long for a near miss as for a far one.
bool equal_in_constant_time(Bytes a, Bytes b);

std::vector<std::byte> encode(const Challenge& challenge);
std::vector<std::byte> encode(const Hello& hello);
std::vector<std::byte> encode(const Welcome& welcome);
std::vector<std::byte> encode(const Bind& bind);
std::vector<std::byte> encode(const RdmaTurn& turn);
// Decoders take bytes from outside: kInvalidArgument for what is truncated, too long or no such
// message. The leading magic and version of Challenge and Hello keep their place for ever; of a
// Hello in another version nothing else is read, and of a Challenge in another version neither.
Result<Challenge> decode_challenge(Bytes bytes);
Result<Hello> decode_hello(Bytes bytes);
Result<Welcome> decode_welcome(Bytes bytes);
Result<Bind> decode_bind(Bytes bytes);
Result<RdmaTurn> decode_rdma_turn(Bytes bytes);

}  // namespace precis
