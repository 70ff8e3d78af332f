#include "cachesvc/transport/ucx_transport.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cachesvc/transport/ucx_bulk.h"
#include "cachesvc/transport/ucx_connection.h"
#include "cachesvc/transport/ucx_host_bulk.h"
#include "cachesvc/transport/ucx_transport_impl.h"
#include "precis/limits.h"

namespace precis {
namespace {

using std::chrono::milliseconds;

void fill_random(MutableBytes bytes) {
  PRECIS_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
}

// The peer's end of the socket is closed, as far as this machine knows.
bool hung_up(int socket) {
  std::byte next;
  const ssize_t got = ::recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

}  // namespace

std::uint64_t random_id() {
  std::uint64_t id = 0;
  while (id == 0) fill_random(std::as_writable_bytes(std::span(&id, 1)));
  return id;
}

Result<std::shared_ptr<UcxLink>> UcxTransport::make_link(std::uint64_t mine,
                                                         const preface::Introduction& peer) {
  PRECIS_ASSIGN(auto link, UcxLink::make(loop_, *worker_, inbox_, {mine, peer.link_id},
                                         peer.worker_address, [this, mine] {
                                           links_.erase(mine);
                                           begin_attempt_later();
                                         }));
  links_.emplace(mine, link);
  return link;
}

void UcxTransport::relieve() {
  relieving_ = false;
  while (inbox_.bytes > options_.inbox_bytes_max && links_.size() > 1) {
    const auto most = std::ranges::max_element(
        links_, {}, [](const auto& row) { return row.second->inbox_bytes(); });
    const auto link = most->second;
    link->end(Status::rejected("messages of " + std::to_string(inbox_.bytes) +
                               " B are on their way to this service, of which this peer's, " +
                               std::to_string(link->inbox_bytes()) + " B, are the most"));
  }
}

// ---- server -------------------------------------------------------------------------------------

void UcxTransport::welcome(std::unique_ptr<PrefaceSocket> socket) {
  if (guests_.size() + links_.size() >= limits::kConnectionsMax) {
    const Status full = Status::rejected("this service has its " +
                                         std::to_string(limits::kConnectionsMax) + " connections");
    note_turned_away(*socket, full);
    return send_last(loop_, std::move(socket), preface::Kind::kError, preface::encode_error(full));
  }
  const std::uint64_t id = next_id_++;
  Guest& guest = guests_[id];
  guest.socket = std::move(socket);
  guest.deadline = preface_deadline(id);
  guest.socket->read([this, id](Result<preface::Frame> frame) { on_hello(id, std::move(frame)); });
}

std::unique_ptr<EventLoop::Timer> UcxTransport::preface_deadline(std::uint64_t id) {
  return loop_.after(options_.preface_timeout, [this, id] {
    turn_away(id, Status::timed_out("no whole preface within " +
                                    std::to_string(options_.preface_timeout.count()) + " ms"));
  });
}

void UcxTransport::on_hello(std::uint64_t id, Result<preface::Frame> frame) {
  const auto check = [&]() -> Status {
    PRECIS_TRY(frame.status());
    if (frame->kind != preface::Kind::kHello) {
      return Status::invalid("a preface begins with a hello");
    }
    PRECIS_ASSIGN(preface::Introduction introduction, preface::decode_introduction(frame->body));
    return admit(id, std::move(introduction));
  };
  if (frame.status().code() == StatusCode::kUnavailable) {  // who looks whether the port is open
    return turn_away(id, preface::Kind::kError, preface::encode_error(frame.status()));
  }
  if (const Status status = check(); !status.ok()) turn_away(id, status);
}

Status UcxTransport::admit(std::uint64_t id, preface::Introduction introduction) {
  Guest& guest = guests_.at(id);
  Greeting greeting = acceptor_.greet(introduction.payload, guest.socket->peer());
  if (!greeting.accept) {
    turn_away(id, preface::Kind::kRefusal, greeting.reply);
    return {};
  }
  guest.introduction = std::move(introduction);
  guest.link_id = random_id();
  fill_random(guest.challenge);

  preface::Introduction mine;
  mine.link_id = guest.link_id;
  mine.host = host_;
  mine.challenge = guest.challenge;
  mine.worker_address = worker_->address();
  mine.payload = std::move(greeting.reply);
  guest.socket->write(preface::Kind::kWelcome, preface::encode_introduction(mine));
  guest.deadline = preface_deadline(id);  // anew: now the peer's UCX reaches this side's
  guest.socket->read([this, id](const Result<preface::Frame>& frame) { on_ready(id, frame); });
  return {};
}

void UcxTransport::on_ready(std::uint64_t id, const Result<preface::Frame>& frame) {
  if (frame.status().code() == StatusCode::kUnavailable) {  // who just goes has done no wrong
    guests_.erase(id);
    return;
  }
  if (!frame.ok()) return turn_away(id, frame.status());
  if (frame->kind != preface::Kind::kReady) {
    return turn_away(id, Status::invalid("a peer that is welcome goes on with being ready"));
  }
  // Nothing of UCX's has run since the frame came: what it made for this peer stands if the peer
  // does.
  if (hung_up(guests_.at(id).socket->descriptor())) {
    guests_.erase(id);
    return;
  }
  const std::string peer = guests_.at(id).socket->peer();
  const auto link = take_link(guests_.at(id));
  if (!link.ok()) return turn_away(id, link.status());
  auto guest = guests_.extract(id);
  (*link)->watch(std::move(guest.mapped().socket));
  acceptor_.accepted(std::make_unique<UcxConnection>(*link, peer),
                     guest.mapped().introduction.payload);
}

Result<std::shared_ptr<UcxLink>> UcxTransport::take_link(Guest& guest) {
  PRECIS_ASSIGN(auto link, make_link(guest.link_id, guest.introduction));
  preface::Terms terms;
  terms.one_sided = one_sided(*link, guest.introduction);
  terms.stream = !terms.one_sided && streams(*link);
  if (terms.stream) link->use_stream(&copiers());
  link->use_means(choose_means(*link, guest));
  guest.socket->write(preface::Kind::kStart, preface::encode_terms(terms));
  return link;
}

// Whether to try the host copy; the proof comes with it.
bool UcxTransport::same_host(const preface::Introduction& peer) const {
  using Mode = UcxOptions::BulkMode;
  return options_.bulk == Mode::kHostCopy ||
         (options_.bulk == Mode::kAuto && options_.transports.empty() && host_ != HostId{} &&
          peer.host == host_);
}

bool UcxTransport::one_sided(const UcxLink& link, const preface::Introduction& peer) const {
  using Mode = UcxOptions::BulkMode;
  return options_.bulk == Mode::kOneSided || (options_.bulk == Mode::kAuto && !same_host(peer) &&
                                              UcxOneSidedBulk::possible(link.lanes()));
}

bool UcxTransport::streams(const UcxLink& link) const {
  using Mode = UcxOptions::BulkMode;
  return options_.bulk == Mode::kStream || (options_.bulk == Mode::kAuto && link.over_tcp());
}

// Null for messages, or the stream that carries their bytes.
std::unique_ptr<BulkMeans> UcxTransport::choose_means(UcxLink& link, const Guest& guest) {
  if (one_sided(link, guest.introduction)) return std::make_unique<UcxOneSidedBulk>(link);
  if (same_host(guest.introduction)) {
    auto peer = HostPeer::prove(guest.introduction.pid, guest.introduction.challenge_address,
                                guest.challenge);
    if (peer.ok()) {
      return std::make_unique<UcxHostBulk>(link, std::move(*peer), copiers(),
                                           options_.copy_threads);
    }
    link.note_no_host_copy(peer.status().message());
  }
  return nullptr;
}

Executor& UcxTransport::copiers() {
  if (!copiers_) copiers_ = std::make_unique<Executor>("precis-copy", options_.copy_threads);
  return *copiers_;
}

void UcxTransport::turn_away(std::uint64_t id, preface::Kind kind, Bytes body) {
  auto guest = guests_.extract(id);
  send_last(loop_, std::move(guest.mapped().socket), kind, body);
}

void UcxTransport::turn_away(std::uint64_t id, const Status& why) {
  note_turned_away(*guests_.at(id).socket, why);
  turn_away(id, preface::Kind::kError, preface::encode_error(why));
}

void UcxTransport::note_turned_away(const PrefaceSocket& socket, const Status& why) const {
  if (acceptor_.turned_away) acceptor_.turned_away(socket.peer(), why);
}

Result<std::unique_ptr<Transport>> make_ucx_transport(EventLoop& loop, const UcxOptions& options) {
  auto transport = std::make_unique<UcxTransport>(loop, options);
  PRECIS_TRY(transport->start());
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace precis
