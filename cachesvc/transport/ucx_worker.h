// UCX for one transport: a context, a worker that the event loop drives, and the calls the links
// make, with completions as callbacks. Everything but map() happens on the loop's thread.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/am_wire.h"
#include "cachesvc/transport/transport.h"
#include "cachesvc/transport/ucx_transport.h"

namespace precis {

// Runs once when an operation is over, at once or later, with the memory it used at rest.
using UcxDone = std::function<void(ucs_status_t)>;

class UcxPages;

// Memory that UCX knows; the key lets a peer's UCX reach it where the network can.
class UcxMemory final : public Registration {
 public:
  UcxMemory(ucp_context_h context, MutableBytes bytes, ucp_mem_h handle, std::string key,
            std::unique_ptr<UcxPages> pages);
  ~UcxMemory() override;
  MutableBytes bytes() const override { return bytes_; }
  ucp_mem_h handle() const { return handle_; }
  const std::string& key() const { return key_; }
  UcxPages* pages() const { return pages_.get(); }  // null for memory that is not the transport's

 private:
  ucp_context_h context_;
  MutableBytes bytes_;
  ucp_mem_h handle_;
  std::string key_;
  std::unique_ptr<UcxPages> pages_;
};

// A message being received: its data is here, or is fetched straight to where it belongs.
struct UcxInbound {
  Bytes header;
  void* data = nullptr;  // the bytes, or UCX's descriptor of a rendezvous
  std::size_t size_bytes = 0;
  bool rendezvous = false;
};

class UcxWorker {
 public:
  // `on_message` is called while the worker makes progress: it takes the data with receive() or
  // loses it, and calls nothing that makes progress.
  static Result<std::unique_ptr<UcxWorker>> create(EventLoop& loop, const UcxOptions& options,
                                                   std::function<void(UcxInbound)> on_message);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  // Another worker, with another address, as if there had been none before: for one that has no
  // endpoints, but on their way out. Registered memory stays.
  Status renew();

  const std::vector<std::byte>& address() const { return address_; }
  unsigned progress() { return ucp_worker_progress(worker_); }

  // Any thread. `pages`: whose memory it is, if the transport made it.
  Result<std::unique_ptr<UcxMemory>> map(MutableBytes memory, std::unique_ptr<UcxPages> pages);

  // `on_error` is called once if UCX loses the peer, while the worker makes progress.
  Result<ucp_ep_h> connect(const std::vector<std::byte>& address,
                           std::function<void(ucs_status_t)>* on_error);
  // Ends every operation on the endpoint with an error and frees it.
  void close(ucp_ep_h endpoint);
  // How UCX chose to reach the peer: its lanes, in UCX's words.
  static std::string describe(ucp_ep_h endpoint);

  // `data` [n ranges, sent as one] must live until `done`.
  void send(ucp_ep_h endpoint, const AmHeader& header, const std::vector<Bytes>& data,
            UcxDone done);
  // Takes the data of a message into `into`, which must hold it.
  void receive(const UcxInbound& inbound, void* into, UcxDone done);

  // Runs `done` when all before it is with the peer; over a connection, it stands by then.
  static void flush(ucp_ep_h endpoint, UcxDone done);

  // One-sided, for networks that have it. put() ends when the bytes are in the peer's memory.
  Result<ucp_rkey_h> unpack_key(ucp_ep_h endpoint, const std::string& key);
  void get(ucp_ep_h endpoint, MutableBytes into, ucp_mem_h local, std::uint64_t remote,
           ucp_rkey_h key, UcxDone done);
  void put(ucp_ep_h endpoint, Bytes from, ucp_mem_h local, std::uint64_t remote, ucp_rkey_h key,
           UcxDone done);

 private:
  UcxWorker(EventLoop& loop, std::chrono::nanoseconds spin,
            std::function<void(UcxInbound)> on_message)
      : loop_(loop), spin_(spin), on_message_(std::move(on_message)) {}
  Status start(const UcxOptions& options);
  Status start_worker();
  void stop_worker();
  static ucs_status_t on_active_message(void* self, const void* header, std::size_t header_bytes,
                                        void* data, std::size_t size,
                                        const ucp_am_recv_param_t* param);

  EventLoop& loop_;
  const std::chrono::nanoseconds spin_;
  std::function<void(UcxInbound)> on_message_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  std::size_t closing_ = 0;  // endpoints on their way out
  std::unique_ptr<EventLoop::Watch> poller_;
};

}  // namespace precis
