// Bulk bytes over the TCP connection that carried the preface: frames of an AmHeader and its data,
// one after the other, both ways. Received bytes go from the kernel straight to where they belong,
// and nowhere any more once the stream is closed; UCX over TCP would copy them a second time.
// Everything happens on the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/transport/am_wire.h"
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
  // `socket` stays its owner's; nobody else reads from it or writes to it from now on.
  BulkStream(EventLoop& loop, int socket, Handlers handlers);
  ~BulkStream() { close(); }
  BulkStream(const BulkStream&) = delete;
  BulkStream& operator=(const BulkStream&) = delete;

  // `data` [n ranges, sent as one] must live until `sent`, which is told whether they went out.
  void send(const AmHeader& header, const std::vector<Bytes>& data, std::function<void(bool)> sent);
  // Does what there is to do, without waiting for more.
  void poll();
  // No memory is touched and nothing but `sent` is called from now on.
  void close();

 private:
  using HeaderBytes = std::array<std::byte, AmHeader::kBytes>;
  struct Outgoing {
    HeaderBytes header;
    std::vector<Bytes> ranges;  // what is left of header and data; the header first
    std::function<void(bool)> sent;
  };
  void turn(void (BulkStream::*move)());
  void receive();
  Status take(std::size_t size_bytes);
  void transmit();
  bool transmit_some();
  void fail(const Status& reason);

  EventLoop& loop_;
  int socket_;        // a descriptor of its own; -1 once closed
  int write_socket_;  // another, to be watched for itself
  Handlers handlers_;
  std::unique_ptr<EventLoop::Watch> readable_, writable_;

  HeaderBytes header_bytes_{};
  std::size_t header_got_ = 0;
  AmHeader header_;
  std::uint64_t data_left_ = 0;  // of the frame under way
  MutableBytes into_;            // where they go; empty: nowhere
  std::vector<std::byte> thrown_away_;

  std::deque<Outgoing> outgoing_;
  bool transmitting_ = false;
  bool broken_ = false;  // nothing can be sent any more
};

}  // namespace precis
