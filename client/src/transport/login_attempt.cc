#include "client/src/transport/login_attempt.h"

#include <chrono>
#include <utility>

#include "cachesvc/net/address.h"
#include "precis/limits.h"

namespace precis {

LoginAttempt::LoginAttempt(EventLoop& loop, Options options, Done done)
    : loop_(loop), options_(std::move(options)), done_(std::move(done)), running_(run()) {
  deadline_ = loop_.after(std::chrono::milliseconds(options_.timeout_ms), [this] {
    finish(Status::timed_out("no answer within " + std::to_string(options_.timeout_ms) + " ms"));
  });
  running_.start();
}

Task<void> LoginAttempt::run() { finish(co_await log_in()); }

// Calls `done` in a later turn of the loop, because `done` destroys this object.
void LoginAttempt::finish(Result<Admitted> result) {
  if (!done_) return;
  // Shared because a posted function must be copyable.
  auto shared = std::make_shared<Result<Admitted>>(std::move(result));
  deadline_ =
      loop_.after({}, [done = std::exchange(done_, nullptr), shared] { done(std::move(*shared)); });
}

Task<Result<LoginAttempt::Admitted>> LoginAttempt::log_in() {
  const std::string& address = options_.address;
  PRECIS_CO_ASSIGN(const auto control, co_await dial(loop_, address, options_.tls));
  auto frame = co_await control->read(limits::kWelcomeBytesMax);
  if (frame.status().code() == StatusCode::kInvalidArgument) {
    co_return Status::unavailable(address + " does not answer as a precisd would (" +
                                  frame.status().message() + "); is the port right?");
  }
  if (!frame.ok() && options_.tls == nullptr && !address.starts_with(kUnixPrefix)) {
    co_return Status::unavailable(address + " does not answer (" + frame.status().message() +
                                  "); if the service wants TLS, give tls_ca");
  }
  PRECIS_CO_TRY(frame.status());
  const auto challenge = decode_challenge(frame->body);
  PRECIS_CO_TRY(challenge.status().with_context(address));
  if (challenge->protocol_version != kProtocolVersion) {
    co_return Status::version(address + ": the service speaks protocol version " +
                              std::to_string(challenge->protocol_version) + ", this client " +
                              std::to_string(kProtocolVersion) + "; use matching releases");
  }
  Hello hello{kProtocolVersion, options_.login.client, options_.login.tenant, make_nonce(), {}};
  hello.proof = client_proof(options_.login.token, challenge->nonce, hello);
  PRECIS_CO_TRY(control->write(FrameKind::kHello, encode(hello)));
  frame = co_await control->read(limits::kWelcomeBytesMax);
  PRECIS_CO_TRY(frame.status());
  Admitted admitted;
  PRECIS_CO_ASSIGN(admitted.welcome, decode_welcome(frame->body));
  const Welcome& welcome = admitted.welcome;
  if (!welcome.status.ok()) co_return admitted;
  PRECIS_CO_TRY(check(welcome, challenge->nonce, hello).with_context(address));
  Result<std::unique_ptr<Socket>> data = Status::unavailable("the server names no Unix socket");
  if (options_.use_unix && !welcome.unix_path.empty()) {
    data = co_await bind(kUnixPrefix + welcome.unix_path, welcome.connection);
  }
  // An unreachable Unix socket is not an error: a container has a file system of its own.
  if (!data.ok()) data = co_await bind(address, welcome.connection);
  PRECIS_CO_ASSIGN(admitted.data, std::move(data));
  admitted.control = control->release();
  co_return admitted;
}

// Checks that the server knows the token, so that it is the intended server.
Status LoginAttempt::check(const Welcome& welcome, const Nonce& challenge, const Hello& hello) {
  const std::string& token = options_.login.token;
  if (!welcome.keyed && !token.empty()) {
    return Status::denied(
        "this tenant has no token at the service, so the service cannot prove that it "
        "is the right one; connect without a token if you trust it");
  }
  const std::string_view key = welcome.keyed ? std::string_view(token) : std::string_view();
  if (!equal_in_constant_time(server_proof(key, challenge, hello, welcome), welcome.proof)) {
    return Status::denied(
        "the service cannot prove that it knows the token; is it the right service?");
  }
  bind_key_ = bind_key(key, challenge, hello, welcome);
  return {};
}

Task<Result<std::unique_ptr<Socket>>> LoginAttempt::bind(std::string address,
                                                         std::uint64_t connection) {
  PRECIS_CO_ASSIGN(const auto data, co_await dial(loop_, address, options_.tls));
  auto frame = co_await data->read(limits::kWelcomeBytesMax);
  PRECIS_CO_TRY(frame.status());
  PRECIS_CO_ASSIGN(const Challenge challenge, decode_challenge(frame->body));
  const Bind says{connection, bind_proof(bind_key_, challenge.nonce, connection)};
  PRECIS_CO_TRY(data->write(FrameKind::kBind, encode(says)));
  frame = co_await data->read(limits::kWelcomeBytesMax);
  PRECIS_CO_TRY(frame.status());
  if (frame->kind != FrameKind::kBound)
    co_return Status::unavailable("the bulk socket was refused");
  co_return data->release();
}

}  // namespace precis
