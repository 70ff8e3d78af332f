#include "client/src/transport/login_attempt.h"

#include <chrono>
#include <utility>

#include "cachesvc/net/address.h"
#include "precis/limits.h"

namespace precis {

LoginAttempt::LoginAttempt(EventLoop& loop, Options options, Done done)
    : loop_(loop), options_(std::move(options)), done_(std::move(done)) {
  deadline_ = loop_.after(std::chrono::milliseconds(options_.timeout_ms), [this] {
    finish(Status::timed_out("no answer within " + std::to_string(options_.timeout_ms) + " ms"));
  });
  dial_ = dial(loop_, options_.address, options_.tls, [this](Result<std::unique_ptr<Socket>> made) {
    if (!made.ok()) return finish(made.status());
    control_ = std::make_shared<ControlStream>(loop_, std::move(*made), limits::kWelcomeBytesMax);
    control_->start(
        {.on_frame = [this](const FrameHeader& header,
                            std::vector<std::byte> body) { on_control(header.kind, body); },
         .on_end =
             [this](const Status& why) {
               finish(why.code() == StatusCode::kInvalidArgument
                          ? Status::unavailable(options_.address +
                                                " does not answer as a precisd would (" +
                                                why.message() + "); is the port right?")
                          : why);
             }});
  });
}

LoginAttempt::~LoginAttempt() {
  if (control_) control_->close();
  if (data_) data_->close();
}

// On a turn of its own, for the caller lets go of this then.
void LoginAttempt::finish(Result<Admitted> result) {
  if (!done_) return;
  // Shared because a posted function must be copyable.
  auto shared = std::make_shared<Result<Admitted>>(std::move(result));
  deadline_ =
      loop_.after({}, [done = std::exchange(done_, nullptr), shared] { done(std::move(*shared)); });
}

void LoginAttempt::on_control(FrameKind kind, Bytes body) {
  Status status = Status::invalid("a frame of kind " + std::to_string(static_cast<int>(kind)) +
                                  " has no place in a greeting");
  if (kind == FrameKind::kChallenge) status = on_challenge(body);
  if (kind == FrameKind::kWelcome || kind == FrameKind::kRefusal) status = on_welcome(body);
  if (!status.ok()) finish(status.with_context(options_.address));
}

Status LoginAttempt::on_challenge(Bytes body) {
  PRECIS_ASSIGN(const Challenge challenge, decode_challenge(body));
  if (challenge.protocol_version != kProtocolVersion) {
    return Status::version("the service speaks protocol version " +
                           std::to_string(challenge.protocol_version) + ", this client " +
                           std::to_string(kProtocolVersion) + "; use matching releases");
  }
  challenge_ = challenge.nonce;
  hello_.protocol_version = kProtocolVersion;
  hello_.tenant = options_.login.tenant;
  hello_.client = options_.login.client;
  hello_.nonce = make_nonce();
  hello_.proof = client_proof(options_.login.token, challenge_, hello_);
  control_->send(FrameKind::kHello, encode(hello_));
  return {};
}

Status LoginAttempt::on_welcome(Bytes body) {
  control_->pause();  // messages wait for the connection's start()
  PRECIS_ASSIGN(admitted_.welcome, decode_welcome(body));
  const Welcome& welcome = admitted_.welcome;
  if (!welcome.status.ok()) {
    finish(std::move(admitted_));
    return {};
  }
  const std::string& token = options_.login.token;
  if (!welcome.keyed && !token.empty()) {
    return Status::denied(
        "the service asks for no token of this tenant, so it can't prove that it "
        "is the right one; connect without the token if that is meant");
  }
  const std::string_view key = welcome.keyed ? std::string_view(token) : std::string_view();
  const Proof wanted = server_proof(key, challenge_, hello_, welcome);
  if (!equal_in_constant_time(wanted, welcome.proof)) {
    return Status::denied("the service does not know the token; it is not the one you mean");
  }
  bind_key_ = bind_key(key, challenge_, hello_, welcome);
  over_unix_ = options_.use_unix && !welcome.unix_path.empty();
  dial_data(over_unix_ ? kUnixPrefix + welcome.unix_path : options_.address);
  return {};
}

void LoginAttempt::dial_data(const std::string& address) {
  dial_ = dial(loop_, address, options_.tls, [this](Result<std::unique_ptr<Socket>> made) {
    if (!made.ok()) return data_failed(made.status());
    data_ = std::make_shared<ControlStream>(loop_, std::move(*made), limits::kWelcomeBytesMax);
    data_->start({.on_frame = [this](const FrameHeader& header,
                                     std::vector<std::byte> body) { on_data(header.kind, body); },
                  .on_end = [this](const Status& why) { data_failed(why); }});
  });
}

void LoginAttempt::on_data(FrameKind kind, Bytes body) {
  if (kind == FrameKind::kChallenge) {
    const auto challenge = decode_challenge(body);
    if (!challenge.ok()) return data_failed(challenge.status());
    const std::uint64_t number = admitted_.welcome.connection;
    return data_->send(FrameKind::kBind,
                       encode(Bind{number, bind_proof(bind_key_, challenge->nonce, number)}));
  }
  if (kind != FrameKind::kBound) {
    return data_failed(Status::unavailable("the bulk socket was refused"));
  }
  data_->pause();
  admitted_.data = data_->release();
  data_.reset();
  admitted_.control = std::move(control_);
  finish(std::move(admitted_));
}

// A Unix socket out of reach is no error: a container has another file system.
void LoginAttempt::data_failed(const Status& why) {
  if (data_) data_->close();
  if (!over_unix_ || options_.address.starts_with(kUnixPrefix)) return finish(why);
  over_unix_ = false;
  retry_ = loop_.after({}, [this] { dial_data(options_.address); });
}

}  // namespace precis
