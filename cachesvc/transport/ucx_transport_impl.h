// The transport over UCX, inside: what becomes of peers from their first frame on until they have a
// UcxLink. ucx_transport.cc is the server's half and what both sides share, ucx_connect.cc the
// client's.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/base/executor.h"
#include "cachesvc/transport/am_wire.h"
#include "cachesvc/transport/preface_io.h"
#include "cachesvc/transport/ucx_link.h"
#include "cachesvc/transport/ucx_pages.h"
#include "cachesvc/transport/ucx_transport.h"
#include "cachesvc/transport/ucx_worker.h"

namespace precis {

// Never 0.
std::uint64_t random_id();

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
    std::exchange(attempts_, {}).clear();  // their ends look whether there are others
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
  bool is_open_to_hosts(const std::string& address) const override { return !is_loopback(address); }

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
    std::string address;
    std::unique_ptr<PrefaceConnect> connecting;  // null until it is begun
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
  void turn_away(std::uint64_t id, const Status& why);
  void note_turned_away(const PrefaceSocket& socket, const Status& why) const;

  // Begins the oldest, if none is under way: one at a time, and where the two sides are out of step
  // not before every link is over.
  void begin_attempt();
  void begin_attempt_later();
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
  // Client: servers that have not taken the endpoint that was made for them, by address. UCX finds
  // the two ends of a connection by counting those between two workers, so the next would not find
  // each other any more; and a server that takes the end of another aborts as it closes it (UCX
  // 1.13).
  std::set<std::string> out_of_step_;
  std::unique_ptr<UcxWorker> worker_;  // before all that uses it, so that it goes last
  std::unique_ptr<Executor> copiers_;  // threads for bulk bytes, once there are some
  // Shared with the Connections; a link stays here until it is over, also without one.
  std::map<std::uint64_t, std::shared_ptr<UcxLink>> links_;
  Acceptor acceptor_;
  std::unique_ptr<PrefaceListener> listener_;
  std::map<std::uint64_t, Guest> guests_;
  std::map<std::uint64_t, std::shared_ptr<Attempt>> attempts_;
  std::uint64_t next_id_ = 1;            // of guests and attempts
  std::atomic<std::uint64_t> pages_{0};  // made so far
};

}  // namespace precis
