#include "cachesvc/transport/ucx_transport.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <utility>

#include "cachesvc/base/executor.h"
#include "cachesvc/transport/am_wire.h"
#include "cachesvc/transport/preface_io.h"
#include "cachesvc/transport/ucx_bulk.h"
#include "cachesvc/transport/ucx_connection.h"
#include "cachesvc/transport/ucx_host_bulk.h"
#include "cachesvc/transport/ucx_link.h"
#include "cachesvc/transport/ucx_pages.h"
#include "cachesvc/transport/ucx_worker.h"
#include "precis/limits.h"

namespace precis {
namespace {

using std::chrono::milliseconds;

void fill_random(MutableBytes bytes) {
  PRECIS_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
}

std::uint64_t random_id() {
  std::uint64_t id = 0;
  while (id == 0) fill_random(std::as_writable_bytes(std::span(&id, 1)));
  return id;
}

// The peer's end of the socket is closed, as far as this machine knows.
bool hung_up(int socket) {
  std::byte next;
  const ssize_t got = ::recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

class UcxTransport final : public Transport {
 public:
  UcxTransport(EventLoop& loop, const UcxOptions& options) : loop_(loop), options_(options) {
    inbox_.on_arrival = [this] {
      if (inbox_.bytes > options_.inbox_bytes_max && !std::exchange(relieving_, true)) {
        loop_.post([this] { relieve(); });
      }
    };
  }

  Status start() {
    PRECIS_ASSIGN(worker_, UcxWorker::create(loop_, options_, [this](const UcxInbound& inbound) {
                    const auto link = links_.find(am_link_id(inbound.header));
                    if (link == links_.end()) return;  // for a link that is over, or nobody's
                    const auto alive = link->second;
                    alive->on_active_message(decode_am_header(inbound.header), inbound);
                  }));
    return {};
  }

  ~UcxTransport() override {
    stop_listening();
    guests_.clear();
    attempts_.clear();
    for (const auto& [id, link] : std::exchange(links_, {})) {
      link->end(Status::canceled("the transport was closed on this side"));
    }
  }

  Result<std::unique_ptr<Registration>> register_memory(MutableBytes memory) override {
    PRECIS_ASSIGN(auto mapped, worker_->map(memory, nullptr));
    return std::unique_ptr<Registration>(std::move(mapped));
  }

  Result<std::unique_ptr<Registration>> allocate_memory(std::size_t size_bytes) override {
    auto pages = Pages::make_shared(size_bytes);
    if (pages.status().code() == StatusCode::kUnsupported) pages = Pages::make_private(size_bytes);
    PRECIS_TRY(pages.status());
    const MutableBytes memory = (*pages)->bytes();
    PRECIS_ASSIGN(auto mapped,
                  worker_->map(memory, std::make_unique<UcxPages>(std::move(*pages), ++pages_)));
    return std::unique_ptr<Registration>(std::move(mapped));
  }

  Result<std::string> listen(const std::string& address, Acceptor acceptor) override {
    acceptor_ = std::move(acceptor);
    PRECIS_ASSIGN(listener_,
                  preface_listen(loop_, address, [this](std::unique_ptr<PrefaceSocket> socket) {
                    welcome(std::move(socket));
                  }));
    return listener_->address();
  }

  void stop_listening() override { listener_.reset(); }

  void connect(const std::string& address, std::vector<std::byte> hello, std::uint32_t timeout_ms,
               std::function<void(Result<Connected>)> done) override;

 private:
  // A peer that is still in its preface, on the server.
  struct Guest {
    std::unique_ptr<PrefaceSocket> socket;
    std::unique_ptr<EventLoop::Timer> deadline;
    preface::Introduction introduction;
    HostChallenge challenge{};
    std::uint64_t link_id = 0;
  };
  // A connect() under way, on the client.
  struct Attempt {
    std::unique_ptr<PrefaceConnect> connecting;
    std::unique_ptr<PrefaceSocket> socket;
    std::unique_ptr<EventLoop::Timer> deadline;
    std::vector<std::byte> hello;
    std::uint64_t link_id = 0;
    std::unique_ptr<HostWindow> window;
    std::shared_ptr<UcxLink> link;       // once the server is known
    std::vector<std::byte> hello_reply;  // with it
    std::function<void(Result<Connected>)> done;
    bool ready = false;  // and said so
    ~Attempt() {
      socket.reset();  // first, so that the server does not take an endpoint that goes
      if (link) link->end(Status::canceled("the preface was not finished"));
    }
  };

  void welcome(std::unique_ptr<PrefaceSocket> socket);
  std::unique_ptr<EventLoop::Timer> preface_deadline(std::uint64_t id);
  void on_hello(std::uint64_t id, Result<preface::Frame> frame);
  Status admit(std::uint64_t id, preface::Introduction introduction);
  void on_ready(std::uint64_t id, const Result<preface::Frame>& frame);
  Result<std::shared_ptr<UcxLink>> take_link(Guest& guest);
  void turn_away(std::uint64_t id, preface::Kind kind, Bytes body);

  void on_connected(std::uint64_t id, Result<std::unique_ptr<PrefaceSocket>> socket);
  void on_answer(std::uint64_t id, Result<preface::Frame> frame);
  Status reach(std::uint64_t id, Attempt& attempt, const preface::Frame& welcome);
  void on_reached(std::uint64_t id, const Status& reached);
  Result<Connected> settle(Attempt& attempt, const Result<preface::Frame>& frame);
  void finish(std::uint64_t id, Result<Connected> result);

  // Ends the link that has most on the way, until all of it is within bounds: who sends less than
  // others is not the one to suffer.
  void relieve();

  Executor& copiers();

  Result<std::shared_ptr<UcxLink>> make_link(std::uint64_t mine, const preface::Introduction& peer);
  bool same_host(const preface::Introduction& peer) const;
  bool one_sided(const UcxLink& link, const preface::Introduction& peer) const;
  bool streams(const UcxLink& link) const;
  std::unique_ptr<BulkMeans> choose_means(UcxLink& link, const Guest& guest);

  EventLoop& loop_;
  const UcxOptions options_;
  const HostId host_ = this_host();
  UcxInbox inbox_;
  bool relieving_ = false;
  // Client: made an endpoint that the server has not taken. UCX finds the two ends of a connection
  // by counting those between two workers, so these would not find each other any more.
  bool out_of_step_ = false;
  std::unique_ptr<UcxWorker> worker_;  // before all that uses it, so that it goes last
  std::unique_ptr<Executor> copiers_;  // threads for host copies, once there are some
  // Shared with the Connections; a link stays here until it is over, also without one.
  std::map<std::uint64_t, std::shared_ptr<UcxLink>> links_;
  Acceptor acceptor_;
  std::unique_ptr<PrefaceListener> listener_;
  std::map<std::uint64_t, Guest> guests_;
  std::map<std::uint64_t, std::shared_ptr<Attempt>> attempts_;
  std::uint64_t next_id_ = 1;            // of guests and attempts
  std::atomic<std::uint64_t> pages_{0};  // made so far
};

Result<std::shared_ptr<UcxLink>> UcxTransport::make_link(std::uint64_t mine,
                                                         const preface::Introduction& peer) {
  PRECIS_ASSIGN(auto link,
                UcxLink::make(loop_, *worker_, inbox_, {mine, peer.link_id}, peer.worker_address,
                              [this, mine] { links_.erase(mine); }));
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
    const Status late = Status::timed_out("no whole preface within " +
                                          std::to_string(options_.preface_timeout.count()) + " ms");
    turn_away(id, preface::Kind::kError, preface::encode_error(late));
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
  if (const Status status = check(); !status.ok()) {
    turn_away(id, preface::Kind::kError, preface::encode_error(status));
  }
}

Status UcxTransport::admit(std::uint64_t id, preface::Introduction introduction) {
  Guest& guest = guests_.at(id);
  Greeting greeting = acceptor_.greet(introduction.payload);
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
  if (!frame.ok() || frame->kind != preface::Kind::kReady) {
    guests_.erase(id);
    return;
  }
  // Nothing of UCX's has run since the frame came: what it made for this peer stands if the peer
  // does.
  if (hung_up(guests_.at(id).socket->descriptor())) {
    guests_.erase(id);
    return;
  }
  const auto link = take_link(guests_.at(id));
  if (!link.ok()) return turn_away(id, preface::Kind::kError, preface::encode_error(link.status()));
  auto guest = guests_.extract(id);
  (*link)->watch(std::move(guest.mapped().socket));
  acceptor_.accepted(std::make_unique<UcxConnection>(*link), guest.mapped().introduction.payload);
}

Result<std::shared_ptr<UcxLink>> UcxTransport::take_link(Guest& guest) {
  PRECIS_ASSIGN(auto link, make_link(guest.link_id, guest.introduction));
  preface::Terms terms;
  terms.one_sided = one_sided(*link, guest.introduction);
  terms.stream = !terms.one_sided && streams(*link);
  if (terms.stream) link->use_stream();
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

// ---- client -------------------------------------------------------------------------------------

void UcxTransport::connect(const std::string& address, std::vector<std::byte> hello,
                           std::uint32_t timeout_ms, std::function<void(Result<Connected>)> done) {
  if (out_of_step_ && links_.empty() && attempts_.empty()) {
    if (const Status renewed = worker_->renew(); !renewed.ok()) return done(renewed);
    out_of_step_ = false;
  }
  const std::uint64_t id = next_id_++;
  Attempt& attempt = *(attempts_[id] = std::make_shared<Attempt>());
  attempt.hello = std::move(hello);
  attempt.done = std::move(done);
  attempt.deadline = loop_.after(milliseconds(timeout_ms), [this, id, address, timeout_ms] {
    const bool greeted = attempts_.at(id)->link != nullptr;
    const std::string within = " within " + std::to_string(timeout_ms) + " ms";
    finish(id,
           Status::timed_out(greeted ? address + " answered, but UCX did not reach it" + within +
                                           "; are its other ports open to this machine?"
                                     : address + " did not answer" + within));
  });
  attempt.connecting =
      preface_connect(loop_, address, [this, id](Result<std::unique_ptr<PrefaceSocket>> socket) {
        on_connected(id, std::move(socket));
      });
}

void UcxTransport::on_connected(std::uint64_t id, Result<std::unique_ptr<PrefaceSocket>> socket) {
  if (!socket.ok()) return finish(id, socket.status());
  Attempt& attempt = *attempts_.at(id);
  attempt.socket = std::move(*socket);
  attempt.link_id = random_id();
  attempt.window = std::make_unique<HostWindow>();

  preface::Introduction mine;
  mine.link_id = attempt.link_id;
  mine.host = host_;
  mine.pid = static_cast<std::uint32_t>(getpid());
  mine.challenge_address = attempt.window->challenge_address();
  mine.worker_address = worker_->address();
  mine.payload = std::move(attempt.hello);
  attempt.socket->write(preface::Kind::kHello, preface::encode_introduction(mine));
  attempt.socket->read(
      [this, id](Result<preface::Frame> frame) { on_answer(id, std::move(frame)); });
}

void UcxTransport::on_answer(std::uint64_t id, Result<preface::Frame> frame) {
  if (!frame.ok()) return finish(id, frame.status());
  if (frame->kind == preface::Kind::kRefusal) {
    return finish(id, Connected{nullptr, std::move(frame->body)});
  }
  const Status status = reach(id, *attempts_.at(id), *frame);
  if (!status.ok()) finish(id, status);
}

Status UcxTransport::reach(std::uint64_t id, Attempt& attempt, const preface::Frame& welcome) {
  if (welcome.kind == preface::Kind::kError) return preface::decode_error(welcome.body);
  if (welcome.kind != preface::Kind::kWelcome) {
    return Status::invalid("the peer answers a hello with another frame");
  }
  PRECIS_ASSIGN(preface::Introduction peer, preface::decode_introduction(welcome.body));
  attempt.hello_reply = std::move(peer.payload);
  attempt.window->answer(peer.challenge);
  PRECIS_ASSIGN(attempt.link, make_link(attempt.link_id, peer));
  out_of_step_ = true;  // until the server has taken its end
  attempt.link->use_window(std::move(attempt.window));
  // The transport may be gone by then, and with it every attempt.
  attempt.link->reach([this, id, weak = std::weak_ptr(attempts_.at(id))](const Status& reached) {
    if (!weak.expired()) on_reached(id, reached);
  });
  attempt.socket->read([this, id](const Result<preface::Frame>& frame) {
    finish(id, settle(*attempts_.at(id), frame));
  });
  return {};
}

void UcxTransport::on_reached(std::uint64_t id, const Status& reached) {
  if (!reached.ok()) {
    return finish(id, Status::unavailable("UCX did not reach the service: " + reached.message()));
  }
  Attempt& attempt = *attempts_.at(id);
  attempt.ready = true;
  attempt.socket->write(preface::Kind::kReady, {});
}

Result<Transport::Connected> UcxTransport::settle(Attempt& attempt,
                                                  const Result<preface::Frame>& frame) {
  PRECIS_TRY(frame.status());
  if (frame->kind == preface::Kind::kError) return preface::decode_error(frame->body);
  if (frame->kind != preface::Kind::kStart || !attempt.ready) {
    return Status::invalid("the peer answers out of turn");
  }
  PRECIS_ASSIGN(const preface::Terms terms, preface::decode_terms(frame->body));
  if (attempt.link->over()) return Status::unavailable("UCX lost the service as it came");
  out_of_step_ = false;
  auto link = std::exchange(attempt.link, nullptr);
  link->window()->watch(attempt.socket->descriptor());
  if (terms.one_sided) link->announce_regions();
  if (terms.stream) link->use_stream();
  link->watch(std::move(attempt.socket));
  return Connected{std::make_unique<UcxConnection>(std::move(link)),
                   std::move(attempt.hello_reply)};
}

void UcxTransport::finish(std::uint64_t id, Result<Connected> result) {
  const auto attempt = attempts_.extract(id);
  attempt.mapped()->done(std::move(result));
}

}  // namespace

Result<std::unique_ptr<Transport>> make_ucx_transport(EventLoop& loop, const UcxOptions& options) {
  auto transport = std::make_unique<UcxTransport>(loop, options);
  PRECIS_TRY(transport->start());
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace precis
