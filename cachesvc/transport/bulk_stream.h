// Bulk bytes over the TCP connection that carried the preface: frames of an AmHeader and its data,
// one after the other, both ways. Received bytes go from the kernel straight to where they belong,
// and nowhere any more once the stream is closed; UCX over TCP would copy them a second time.
// Used on the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/am_wire.h"
#include "cachesvc/transport/bulk_sender.h"
#include "precis/status.h"
#include "precis/view.h"

namespace precis {

class BulkStream {
 public:
  struct Handlers {
    // A frame has begun: where its data goes, all of it, or nothing where it is thrown away. Not OK
    // ends the stream.
    std::function<Result<MutableBytes>(const AmHeader&)> begin;
    std::function<void(const AmHeader&)> end;  // its data has arrived
    // After a turn of the loop that moved bytes: a stream that never runs dry leaves Asio no pause
    // in which the loop would ask its pollers.
    std::function<void()> moved;
    std::function<void(Status)> gone;  // once, if the peer goes or breaks the protocol
  };
  // `socket` stays its owner's; nobody else reads from it or writes to it from now on. `senders`,
  // which may be null, send what is large (bulk_sender.h).
  BulkStream(EventLoop& loop, int socket, Executor* senders, Handlers handlers);
  ~BulkStream() { close(); }
  BulkStream(const BulkStream&) = delete;
  BulkStream& operator=(const BulkStream&) = delete;

  // `data` [n ranges, sent as one] must live until `sent`, which is told whether they went
  // out, and may send and close.
  void send(const AmHeader& header, const std::vector<Bytes>& data, std::function<void(bool)> sent);
  // Does what there is to do, without waiting for more.
  void poll();
  // No memory is touched and nothing but `sent` is called from now on. May wait for a thread that
  // is amid a call to the kernel.
  void close();

 private:
  using HeaderBytes = std::array<std::byte, AmHeader::kBytes>;
  void receive();
  Status take(std::size_t size_bytes);
  void fail(const Status& reason);

  EventLoop& loop_;
  int socket_;  // a descriptor of its own; -1 once closed
  Handlers handlers_;
  BulkSender sender_;
  std::unique_ptr<EventLoop::Watch> readable_;

  HeaderBytes header_bytes_{};
  std::size_t header_got_ = 0;
  AmHeader header_;
  std::uint64_t data_left_ = 0;  // of the frame under way
  MutableBytes into_;            // where they go; empty: nowhere
  std::vector<std::byte> thrown_away_;
};

}  // namespace precis
