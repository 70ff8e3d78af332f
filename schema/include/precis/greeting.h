// The greeting of two processes (frames.h gives the order of messages): it identifies the client,
// proves that both sides know the tenant's token, and binds further sockets to the connection.
//
// The token is never sent. The server sends a nonce. The client answers with an HMAC-SHA256 under
// the token over both nonces and its own fields. The server's answer contains an HMAC too, which
// detects an impostor without the token. Bind uses a key that both sides derive from the token and
// a secret of the Welcome, so an eavesdropper cannot bind a socket if the tenant has a token. Every
// proof covers a fresh nonce, so no proof is accepted twice.
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

// Random bytes from the operating system's generator.
Nonce make_nonce();

// The identity that a client presents.
struct Login {
  std::string client;  // name and version, for the service's log
  std::string tenant;  // empty: the default tenant
  std::string token;   // empty: none; never sent
};

// The server's first message on every socket.
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

// The server's answer: kWelcome if `status` is OK. Otherwise kRefusal, and the other fields are
// empty.
struct Welcome {
  Status status;
  std::uint32_t protocol_version = 0;
  std::string server;            // name and version
  bool keyed = false;            // the tenant has a token, and the proofs use it
  std::uint64_t connection = 0;  // named in Bind
  Nonce secret{};
  Proof proof{};           // server_proof()
  std::string unix_path;   // a Unix socket of the same service for Bind; empty: none
  bool rdma = false;       // the server answers RdmaTurns
  bool clustered = false;  // the server is in a cluster: others may own what the client asks for
  bool operator==(const Welcome&) const = default;
};

struct Bind {
  std::uint64_t connection = 0;
  Proof proof{};  // bind_proof()
  bool operator==(const Bind&) const = default;
};

// Messages by which an admitted client and its server set up RDMA (cachesvc/net/rdma/rdma.h). First
// the client sends its address. The server answers with its own, or with empty fields if it cannot
// use RDMA. Then the client sends its window (cachesvc/net/shared_window.h), and transfers may
// begin. No key to server memory is sent. Each part has at most limits::kRdmaAddressBytesMax.
struct RdmaTurn {
  std::string device, endpoint;
  std::uint64_t window = 0;  // the window's address
  std::string window_key;    // only in the third message
  bool operator==(const RdmaTurn&) const = default;
};

// `token` is empty if the tenant has none.
Proof client_proof(std::string_view token, const Nonce& challenge, const Hello& hello);
Proof server_proof(std::string_view token, const Nonce& challenge, const Hello& hello,
                   const Welcome& welcome);
// The key that both sides keep for Bind. `challenge` is that of the control socket.
Proof bind_key(std::string_view token, const Nonce& challenge, const Hello& hello,
               const Welcome& welcome);
// `challenge` is that of the socket to bind.
Proof bind_proof(const Proof& key, const Nonce& challenge, std::uint64_t connection);
// Takes the same time for any two inputs of equal size.
bool equal_in_constant_time(Bytes a, Bytes b);

std::vector<std::byte> encode(const Challenge& challenge);
std::vector<std::byte> encode(const Hello& hello);
std::vector<std::byte> encode(const Welcome& welcome);
std::vector<std::byte> encode(const Bind& bind);
std::vector<std::byte> encode(const RdmaTurn& turn);
// Decoders check bytes from outside: kInvalidArgument for a message that is truncated, too long or
// of another kind. Every version of Challenge and Hello begins with the same magic and version
// fields. If a Hello has another version, only these two are read. Bytes after a Challenge are
// ignored.
Result<Challenge> decode_challenge(Bytes bytes);
Result<Hello> decode_hello(Bytes bytes);
Result<Welcome> decode_welcome(Bytes bytes);
Result<Bind> decode_bind(Bytes bytes);
Result<RdmaTurn> decode_rdma_turn(Bytes bytes);

}  // namespace precis
