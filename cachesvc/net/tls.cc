#include "cachesvc/net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace precis {
namespace {

using Io = Socket::Io;

struct Free {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
  void operator()(SSL* session) const { ::SSL_free(session); }
};

// Returns the first of OpenSSL's queued errors and clears the queue.
std::string last_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  if (code == 0) return "the connection broke";
  if (ERR_SYSTEM_ERROR(code)) return std::strerror(ERR_GET_REASON(code));
  std::array<char, 256> text{};
  ::ERR_error_string_n(code, text.data(), text.size());
  const char* const reason = ::ERR_reason_error_string(code);
  return reason != nullptr ? reason : text.data();
}

Status wrong_file(const char* key, const std::string& path) {
  const char* const what =
      ERR_SYSTEM_ERROR(::ERR_peek_error()) ? ": cannot read " : ": cannot use ";
  return Status::invalid(key + (what + path) + ": " + last_error());
}

using Context = std::unique_ptr<SSL_CTX, Free>;

Result<Context> make_context(const SSL_METHOD* method, const TlsFiles& files, const TlsKeys& keys) {
  Context context(::SSL_CTX_new(method));
  if (context == nullptr) return Status::internal("TLS can't start: " + last_error());
  ::SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  ::SSL_CTX_set_mode(context.get(),
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ::SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  ::SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  if (!files.cert.empty() &&
      ::SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str()) != 1) {
    return wrong_file(keys.cert, files.cert);
  }
  if (!files.key.empty() &&
      ::SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return wrong_file(keys.key, files.key);
  }
  if (!files.key.empty() && ::SSL_CTX_check_private_key(context.get()) != 1) {
    return Status::invalid(std::string(keys.key) + ": " + files.key + " is not the key of " +
                           keys.cert + " " + files.cert);
  }
  return context;
}

// The reason of an alert that the peer sent is this offset plus the alert's number. Smaller reasons
// are errors that this side found.
bool is_said_by_peer(int reason) { return reason >= SSL_AD_REASON_OFFSET; }

// Limits how often one call of this file may ask the kernel for bytes; a record takes two. Without
// the limit, a peer that sends records without data (key updates) could block the thread. The
// remaining bytes make the socket readable again.
constexpr unsigned kReceivesMax = 64;
thread_local unsigned receives_left = 0;

// OpenSSL's own socket BIO raises SIGPIPE if the peer is gone; a library must not.
int send_quietly(BIO* bio, const char* data, int size) {
  const int socket = static_cast<int>(reinterpret_cast<std::intptr_t>(::BIO_get_data(bio)));
  const ssize_t sent =
      ::send(socket, data, static_cast<std::size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::BIO_clear_retry_flags(bio);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) ::BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}
int receive(BIO* bio, char* data, int size) {
  const int socket = static_cast<int>(reinterpret_cast<std::intptr_t>(::BIO_get_data(bio)));
  if (receives_left == 0) {
    ::BIO_set_retry_read(bio);
    return -1;
  }
  --receives_left;
  const ssize_t got = ::recv(socket, data, static_cast<std::size_t>(size), MSG_DONTWAIT);
  ::BIO_clear_retry_flags(bio);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) ::BIO_set_retry_read(bio);
  return static_cast<int>(got);
}
long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    ::BIO_meth_set_write(made, &send_quietly);
    ::BIO_meth_set_read(made, &receive);
    ::BIO_meth_set_ctrl(made, &control);
    return made;
  }();
  return method;
}

void attach(SSL* ssl, int socket) {
  BIO* const bio = ::BIO_new(socket_method());
  ::BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(ssl, bio, bio);
}

class TlsSocket final : public Socket {
 public:
  TlsSocket(Descriptor descriptor, SSL_CTX* context, const std::string& host)
      : Socket(std::move(descriptor)), ssl_(::SSL_new(context)) {
    PRECIS_CHECK(ssl_ != nullptr);
    attach(ssl_.get(), Socket::descriptor());
    host.empty() ? ::SSL_set_accept_state(ssl_.get()) : ::SSL_set_connect_state(ssl_.get());
    if (!host.empty()) expect_host(ssl_.get(), host);
  }

  bool is_encrypted() const override { return true; }
  Io handshake() override {
    receives_left = kReceivesMax;
    return result(::SSL_do_handshake(ssl_.get()), 1, ::SSL_is_server(ssl_.get()) == 1);
  }

  Io read(MutableBytes into, Descriptor*) override {
    std::size_t got = 0;
    receives_left = kReceivesMax;
    const int returned = ::SSL_read_ex(ssl_.get(), into.data(), into.size(), &got);
    return result(returned, got);
  }

  Io write(std::span<const Bytes> ranges, int) override {
    std::size_t sent = 0;
    receives_left = kReceivesMax;
    for (const Bytes range : ranges) {
      if (range.empty()) continue;
      std::size_t taken = 0;
      const int returned = ::SSL_write_ex(ssl_.get(), range.data(), range.size(), &taken);
      if (returned <= 0) {
        // Only after a part of a handshake message, such as half a KeyUpdate, does a write wait for
        // the peer. Such a peer is not waited for: the descriptor is writable all the time.
        if (::SSL_get_error(ssl_.get(), returned) == SSL_ERROR_WANT_READ) {
          return {Io::State::kEnded, 0,
                  Status::unavailable("TLS: the peer sent only a part of a handshake message")};
        }
        const Io io = result(returned, 0);
        if (sent == 0 || io.state == Io::State::kEnded) return io;
        break;
      }
      sent += taken;
      if (taken < range.size()) break;
    }
    return sent > 0 ? Io{Io::State::kMoved, sent, {}} : Io{Io::State::kWait, 0, {}};
  }

  bool has_buffered() const override { return ::SSL_pending(ssl_.get()) > 0; }

  void shut_down() override {
    ::SSL_shutdown(ssl_.get());
    ::ERR_clear_error();
    Socket::shut_down();
  }

 private:
  // Returns the cause in words that name the setting to change, if there is one.
  std::string cause(int reason) const {
    const long verified = ::SSL_get_verify_result(ssl_.get());
    if (verified != X509_V_OK) return ::X509_verify_cert_error_string(verified);
    const bool is_server = ::SSL_is_server(ssl_.get()) == 1;
    switch (reason) {
      case SSL_R_WRONG_VERSION_NUMBER:
      case SSL_R_HTTP_REQUEST:
        return is_server ? "it does not speak TLS"
                         : "the service does not speak TLS: leave out tls_ca";
      case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return "it showed no certificate";
      case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "the service requires a certificate: give tls_cert and tls_key";
      default: return last_error();
    }
  }

  // `refuses`: an error that the peer causes is a refusal by this side, not a lost connection.
  Io result(int returned, std::size_t bytes, bool refuses = false) {
    if (returned > 0) return {Io::State::kMoved, bytes, {}};
    const int error = ::SSL_get_error(ssl_.get(), returned);
    switch (error) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE: return {Io::State::kWait, 0, {}};
      case SSL_ERROR_ZERO_RETURN:
        return {Io::State::kEnded, 0, Status::unavailable("the peer closed the connection")};
      default: break;
    }
    const unsigned long first = ::ERR_peek_error();
    const int reason = ERR_GET_LIB(first) == ERR_LIB_SSL ? ERR_GET_REASON(first) : 0;
    refuses = refuses && error == SSL_ERROR_SSL && !is_said_by_peer(reason);
    const bool is_unsigned = ::SSL_get_verify_result(ssl_.get()) != X509_V_OK;
    const std::string why = "TLS: " + cause(reason);
    ::ERR_clear_error();
    if (!refuses) return {Io::State::kEnded, 0, Status::unavailable(why)};
    const bool is_denied = is_unsigned || reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE;
    return {Io::State::kEnded, 0, is_denied ? Status::denied(why) : Status::invalid(why)};
  }

  const std::unique_ptr<SSL, Free> ssl_;
};

class OpenSslContext final : public TlsContext {
 public:
  explicit OpenSslContext(Context context) : context_(std::move(context)) {}
  std::unique_ptr<Socket> wrap(Descriptor socket, const std::string& host) const override {
    return std::make_unique<TlsSocket>(std::move(socket), context_.get(), host);
  }
  ssl_ctx_st* share() const override {
    ::SSL_CTX_up_ref(context_.get());
    return context_.get();
  }

 private:
  const Context context_;
};

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::for_server(const TlsFiles& files,
                                                           const TlsKeys& keys) {
  if (files.cert.empty() || files.key.empty()) {
    return Status::invalid("TLS needs both " + (keys.cert + (" and " + std::string(keys.key))));
  }
  PRECIS_ASSIGN(Context context, make_context(::TLS_server_method(), files, keys));
  if (!files.ca.empty()) {
    if (::SSL_CTX_load_verify_locations(context.get(), files.ca.c_str(), nullptr) != 1) {
      return wrong_file(keys.ca, files.ca);
    }
    ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  ::SSL_CTX_set_num_tickets(context.get(), 0);  // connections are few and long-lived
  return std::shared_ptr<TlsContext>(std::make_shared<OpenSslContext>(std::move(context)));
}

Result<std::shared_ptr<TlsContext>> TlsContext::for_client(const TlsFiles& files) {
  PRECIS_ASSIGN(Context context, make_context(::TLS_client_method(), files, {}));
  const int loaded = files.ca == "system" ? ::SSL_CTX_set_default_verify_paths(context.get())
                                          : ::SSL_CTX_load_verify_locations(
                                                context.get(), files.ca.c_str(), nullptr);
  if (loaded != 1) return wrong_file("tls_ca", files.ca);
  ::SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return std::shared_ptr<TlsContext>(std::make_shared<OpenSslContext>(std::move(context)));
}

void expect_host(ssl_st* connection, const std::string& host) {
  if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(connection), host.c_str()) != 1) {
    ::SSL_set1_host(connection, host.c_str());
    ::SSL_set_tlsext_host_name(connection, host.c_str());
  }
  ::ERR_clear_error();
}

}  // namespace precis
