#include "tests/hostile/talk.h"

#include <poll.h>

#include <array>
#include <chrono>
#include <utility>

#include "cachesvc/net/shared_window.h"

namespace precis::hostile {
namespace {

// After a change the service may wait for bytes that never come, so the client does not wait long.
constexpr milliseconds kTwistedPatience{6};
constexpr milliseconds kLate{2};

}  // namespace

milliseconds Talk::patience() const {
  return options_.twister != nullptr && options_.twister->has_begun() ? kTwistedPatience
                                                                      : options_.patience;
}

Wire Talk::dial(bool over_unix) const {
  return over_unix ? Wire::unix_socket(target_) : Wire::tcp(target_, options_.host);
}

void Talk::say(Wire& wire, Buffer bytes, const std::vector<int>& pass) {
  if (over_) return;
  if (options_.recording != nullptr) options_.recording->push_back(bytes);
  if (options_.twister == nullptr) {
    over_ = !wire.send(bytes, pass);
    return;
  }
  for (const auto& piece : options_.twister->twist(std::move(bytes), pass, wire.descriptor())) {
    if (piece.late) ::poll(nullptr, 0, static_cast<int>(kLate.count()));
    // TCP ignores the descriptors in `pass`.
    if (!wire.send(piece.bytes, piece.pass, milliseconds(50))) over_ = true;
  }
  if (!options_.twister->hangs_up()) return;
  wire.close();
  over_ = true;
}

Status Talk::greet(const Login& login) {
  control_ = dial(options_.over_unix);
  const auto challenge = control_.read_frame(patience());
  if (!challenge) return Status::unavailable("no challenge came");
  PRECIS_ASSIGN(const Challenge decoded, decode_challenge(challenge->body));
  challenge_ = decoded.nonce;
  hello_.protocol_version = kProtocolVersion;
  hello_.client = login.client;
  hello_.tenant = login.tenant;
  hello_.nonce = make_nonce();
  hello_.proof = client_proof(login.token, challenge_, hello_);
  say(control_, frame(FrameKind::kHello, encode(hello_)));
  const auto answer = control_.read_frame(patience());
  if (!answer) return Status::unavailable("no answer to the greeting came");
  PRECIS_ASSIGN(welcome_, decode_welcome(answer->body));
  PRECIS_TRY(welcome_.status);
  key_ = bind_key(login.token, challenge_, hello_, welcome_);
  return {};
}

bool Talk::bind(bool over_unix) {
  data_ = dial(over_unix);
  const auto challenge = data_.read_frame(patience());
  if (!challenge) return false;
  const auto decoded = decode_challenge(challenge->body);
  if (!decoded.ok()) return false;
  const std::uint64_t number = welcome_.connection;
  say(data_,
      frame(FrameKind::kBind, encode(Bind{number, bind_proof(key_, decoded->nonce, number)})));
  const auto answer = data_.read_frame(patience());
  return answer && answer->header.kind == FrameKind::kBound;
}

std::optional<FrameKind> Talk::bind_with(const Bind& bind, bool over_unix) {
  Wire wire = dial(over_unix);
  if (!wire.read_frame(options_.patience)) return {};
  wire.send(frame(FrameKind::kBind, encode(bind)));
  const auto answer = wire.read_frame(options_.patience);
  if (!answer) return {};
  return answer->header.kind;
}

bool Talk::share_file(std::uint64_t id, std::uint64_t size_bytes, const std::vector<int>& pass) {
  say(data_, frame({BulkKind::kShare, 0, id, 0, size_bytes}), pass);
  const auto deadline = std::chrono::steady_clock::now() + patience();
  while (!shared_.contains(id) && !over_ && std::chrono::steady_clock::now() < deadline) {
    if (!step({})) break;
  }
  const auto answer = shared_.extract(id);
  return !answer.empty() && answer.mapped();
}

bool Talk::share() {
  window_ = std::make_unique<MemoryFile>(kWindowBytes);
  buffer_ = std::make_unique<MemoryFile>(kBufferBytes);
  const bool window = share_file(kWindowBuffer, kWindowBytes, {window_->descriptor()});
  return share_file(kBuffer, kBufferBytes, {buffer_->descriptor()}) && window;
}

RemoteRegion Talk::expose(std::size_t offset, std::size_t size_bytes, bool shared) {
  RemoteRegion region;
  region.id = next_region_++;
  region.size_bytes = size_bytes;
  if (shared && buffer_) {
    region.buffer = kBuffer;
    region.buffer_offset = offset;
    region.slot = next_slot_++ % limits::kSharedSlotsMax;
    window_slots(window())[region.slot].open.store(region.id);
  } else {
    regions_.emplace(region.id, Buffer(size_bytes, std::byte{1}));
  }
  return region;
}

std::uint64_t Talk::send(msg::RequestBody body) {
  const std::uint64_t id = next_request_++;
  say(control_, frame(FrameKind::kMessage, encode(msg::Request{id, std::move(body)})));
  return id;
}

std::optional<msg::Reply> Talk::call(msg::RequestBody body) { return await(send(std::move(body))); }

std::optional<msg::Reply> Talk::await(std::uint64_t id) {
  const auto deadline = std::chrono::steady_clock::now() + patience();
  while (!replies_.contains(id) && !over_ && std::chrono::steady_clock::now() < deadline) {
    if (!step(id)) break;
  }
  const auto reply = replies_.extract(id);
  if (reply.empty()) return {};
  return reply.mapped();
}

// Handles received frames; false if nothing arrived in time.
bool Talk::step(std::optional<std::uint64_t> reply) {
  std::array<pollfd, 2> sockets{pollfd{control_.descriptor(), POLLIN, 0},
                                pollfd{data_.descriptor(), POLLIN, 0}};
  if (!data_.is_open()) sockets[1].fd = -1;
  if (::poll(sockets.data(), sockets.size(), static_cast<int>(patience().count())) <= 0) {
    return false;
  }
  if (sockets[1].revents != 0 && !read_data()) data_.close();
  if (sockets[0].revents != 0 && !read_control()) over_ = true;
  return reply.has_value() || data_.is_open();
}

bool Talk::read_control() {
  const auto frame = control_.read_frame(patience());
  if (!frame) return false;
  const auto message = decode_server_message(frame->body);
  if (!message.ok()) return true;  // an answer to a changed request
  if (const auto* const reply = std::get_if<msg::Reply>(&*message)) {
    replies_.insert_or_assign(reply->id, *reply);
  }
  return true;
}

bool Talk::read_data() {
  const auto header = data_.read_bulk(patience());
  if (!header) return false;
  if (header->kind == BulkKind::kShared) shared_[header->id] = header->offset == 1;
  if (header->kind == BulkKind::kPull) return serve_pull(*header);
  if (header->kind != BulkKind::kPush) return true;
  pushed_bytes_ += header->size_bytes;
  return data_.read(header->size_bytes, patience()).has_value();
}

bool Talk::serve_pull(const BulkHeader& pull) {
  const auto region = regions_.find(pull.region);
  const bool known = region != regions_.end() && pull.offset <= region->second.size() &&
                     pull.size_bytes <= region->second.size() - pull.offset;
  if (known) {
    const Bytes bytes = Bytes(region->second).subspan(pull.offset, pull.size_bytes);
    say(data_, frame({BulkKind::kData, pull.size_bytes, pull.id, 0, 0}, bytes));
  }
  say(data_, frame({BulkKind::kEnd, 0, pull.id, 0, known ? 0u : 1u}));
  return true;
}

}  // namespace precis::hostile
