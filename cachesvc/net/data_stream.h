// Bulk frames (frames.h) on one socket, in both directions. The kernel reads and writes the bytes
// in their final memory, without a copy in between.
//
// Threads: any thread may call send() and close(). Handlers run on the loop's thread, `sent` on the
// thread that sends. Owners share the stream with pending callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/net/region_table.h"
#include "cachesvc/net/socket.h"
#include "precis/frames.h"

namespace precis {

class DataStream : public std::enable_shared_from_this<DataStream> {
 public:
  // Memory that may be accessed while `hold` lives. Empty bytes: received data is discarded.
  struct Place {
    MutableBytes bytes;
    std::shared_ptr<void> hold;
  };
  // Returns a place in a region of `table`, or an empty one if the region is no longer exposed.
  static Place place_in(RegionTable& table, std::uint64_t region, std::uint64_t offset,
                        std::uint64_t size_bytes);
  struct Handlers {
    // A frame has begun. `passed` is a descriptor that arrived with it, or none. A Status that is
    // not OK ends the stream.
    std::function<Status(const BulkHeader&, Descriptor passed)> on_frame;
    // Returns the memory for the next bytes of the frame's data, of which `done` are received. It
    // is called for each piece, and the place is released after the piece.
    std::function<Place(const BulkHeader&, std::size_t done)> place;
    std::function<void(const BulkHeader&)> on_data;  // all of its data was received
    std::function<void(Status)> on_end;              // once
  };
  struct Frame {
    BulkHeader header;
    std::vector<Bytes> data;  // must live until `sent`
    // If set, it is called before each piece of data is read. The data may be read while the
    // returned object lives. Null: the data is gone, and zeros are sent instead.
    std::function<std::shared_ptr<void>()> hold = nullptr;
    int pass = -1;  // a descriptor for the peer; send() duplicates it
    // Called with whether the kernel has taken the frame with all of its real data.
    std::function<void(bool ok)> sent = nullptr;
    bool first = false;  // goes before other frames that have not begun
  };

  DataStream(EventLoop& loop, std::unique_ptr<Socket> socket);
  ~DataStream();
  DataStream(const DataStream&) = delete;
  DataStream& operator=(const DataStream&) = delete;

  void start(Handlers handlers);  // loop's thread
  void send(Frame frame);
  // When it returns, no memory is accessed any more, and no handler starts except one that a thread
  // is just calling. Unsent frames get sent(false). It may wait for one call to the kernel. The
  // socket itself closes with this object: a peer may wait for that (shared_window.h).
  void close();
  // The number of frames with data that the kernel has taken.
  std::uint64_t data_frames_sent() const { return data_frames_sent_.load(); }
  const Socket& socket() const { return *socket_; }

 private:
  struct Queued {
    std::array<std::byte, BulkHeader::kBytes> header;
    std::size_t header_sent = 0;
    std::vector<Bytes> ranges;  // unsent parts of the data
    Frame frame;
    Descriptor pass;
    bool begun = false;
    bool whole = true;  // false: the data is gone, and zeros are sent instead
  };
  void receive();
  Status receive_some(std::size_t& budget, bool& waits);
  void flush(std::unique_lock<std::mutex> sending);
  bool send_front(std::vector<std::function<void()>>& told);
  void post_flush();
  void fail(Status why);

  EventLoop& loop_;
  const std::unique_ptr<Socket> socket_;
  std::unique_ptr<EventLoop::SocketWatch> watch_;  // used on the loop's thread
  bool turn_posted_ = false;            // used on the loop's thread: a further receive() is posted
  std::shared_ptr<Handlers> handlers_;  // guarded by receiving_

  std::mutex receiving_;  // held while bytes are received
  std::array<std::byte, BulkHeader::kBytes> header_bytes_{};
  std::size_t header_got_ = 0;
  Descriptor passed_;
  BulkHeader header_;
  std::size_t data_got_ = 0;

  std::mutex sending_;  // held while bytes are sent; locked before queue_mutex_
  std::mutex queue_mutex_;
  // Guarded by queue_mutex_, the first frame by sending_.
  std::deque<std::unique_ptr<Queued>> queue_;
  bool flush_posted_ = false;  // guarded by queue_mutex_
  bool blocked_ = false;       // guarded by sending_: the kernel accepts no more now
  bool unwritable_ = false;    // guarded by sending_: the kernel accepts no more ever
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> data_frames_sent_{0};
};

}  // namespace precis
