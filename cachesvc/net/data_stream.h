// Bulk frames (frames.h) on one socket, both ways. Bytes go from the kernel straight to where they
// belong, and from where they lie to the kernel.
//
// Threads: send() and close() from any; handlers run on the loop's thread, `sent` on the thread
// that sends. Owners share it with callbacks under way.
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
  // Memory that may be touched as long as `hold` lives. Empty bytes: received data is thrown away.
  struct Place {
    MutableBytes bytes;
    std::shared_ptr<void> hold;
  };
  // In a region of `table`; empty where it was taken back.
  static Place place_in(RegionTable& table, std::uint64_t region, std::uint64_t offset,
                        std::uint64_t size_bytes);
  struct Handlers {
    // A frame has begun; `passed` is a descriptor that came with it, or none. Not OK ends the
    // stream.
    std::function<Status(const BulkHeader&, Descriptor passed)> on_frame;
    // Where the next bytes of its data go, `done` of which were received. Called anew for each
    // piece, and the place is let go after it.
    std::function<Place(const BulkHeader&, std::size_t done)> place;
    std::function<void(const BulkHeader&)> on_data;  // all of its data was received
    std::function<void(Status)> on_end;              // once
  };
  struct Frame {
    BulkHeader header;
    std::vector<Bytes> data;  // must live until `sent`
    // Where set: asked before each piece of data is read, which may be read as long as what it
    // returns lives. Null: the data is gone, and zeros take its place.
    std::function<std::shared_ptr<void>()> hold = nullptr;
    int pass = -1;  // a descriptor for the peer, of which send() makes a copy
    // Whether the frame was handed to the kernel, with all of its data as it lay there.
    std::function<void(bool ok)> sent = nullptr;
    bool first = false;  // ahead of other frames that have not begun
  };

  DataStream(EventLoop& loop, std::unique_ptr<Socket> socket);
  ~DataStream();
  DataStream(const DataStream&) = delete;
  DataStream& operator=(const DataStream&) = delete;

  void start(Handlers handlers);  // loop's thread
  void send(Frame frame);
  // No memory is touched once it returns, and no handler begins but one that a thread is about to
  // call; frames that were not sent are told so. May wait for one call to the kernel. The socket
  // itself closes with this object: a peer may wait for that (shared_window.h).
  void close();
  // Frames with data that were handed to the kernel.
  std::uint64_t data_frames_sent() const { return data_frames_sent_.load(); }
  const Socket& socket() const { return *socket_; }

 private:
  struct Queued {
    std::array<std::byte, BulkHeader::kBytes> header;
    std::size_t header_sent = 0;
    std::vector<Bytes> ranges;  // of data, unsent
    Frame frame;
    Descriptor pass;
    bool begun = false;
    bool whole = true;  // else the data is gone, and zeros take its place
  };
  void receive();
  Status receive_some(std::size_t& budget, bool& waits);
  void flush(std::unique_lock<std::mutex> sending);
  bool send_front(std::vector<std::function<void()>>& told);
  void post_flush();
  void fail(Status why);

  EventLoop& loop_;
  const std::unique_ptr<Socket> socket_;
  std::unique_ptr<EventLoop::SocketWatch> watch_;  // the loop's
  bool turn_posted_ = false;                       // the loop's: it reads on later
  std::shared_ptr<Handlers> handlers_;             // guarded by receiving_

  std::mutex receiving_;  // held while bytes are received
  std::array<std::byte, BulkHeader::kBytes> header_bytes_{};
  std::size_t header_got_ = 0;
  Descriptor passed_;
  BulkHeader header_;
  std::size_t data_got_ = 0;

  std::mutex sending_;  // held while bytes are sent; before queue_mutex_
  std::mutex queue_mutex_;
  std::deque<std::unique_ptr<Queued>> queue_;  // guarded by queue_mutex_; the first, by sending_
  bool flush_posted_ = false;                  // guarded by queue_mutex_
  bool blocked_ = false;                       // guarded by sending_: the kernel takes no more now,
  bool unwritable_ = false;                    // or ever
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> data_frames_sent_{0};
};

}  // namespace precis
