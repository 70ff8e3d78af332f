// The sending half of a BulkStream (bulk_stream.h): frames, one after the other, into a socket.
// Where there are threads for it, large ones are sent beside the loop, which meanwhile answers
// others: the kernel copies every byte within the call that sends it. Used on the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/executor.h"
#include "cachesvc/transport/am_wire.h"
#include "precis/view.h"

namespace precis {

class BulkSender {
 public:
  struct Handlers {
    std::function<void()> moved;  // after a turn of the loop in which it went on sending
    // An errno: once, on a turn of its own, and not for a peer that is gone.
    std::function<void(int)> broken;
  };
  // `socket` stays its owner's. It is in use until close(), and so are the threads, which may be
  // null; the loop outlives them.
  BulkSender(EventLoop& loop, int socket, Executor* threads, Handlers handlers);
  ~BulkSender() { close(); }
  BulkSender(const BulkSender&) = delete;
  BulkSender& operator=(const BulkSender&) = delete;

  // As BulkStream::send().
  void send(const AmHeader& header, const std::vector<Bytes>& data, std::function<void(bool)> sent);
  // Goes on sending without waiting for the loop: by one call to the kernel, or by the threads.
  void poll();
  // Sends nothing more but what a thread is amid; frames stay until close().
  void halt();
  // Waits for a thread that is amid a call: a fraction of a millisecond's work. No memory is read
  // from now on, and nothing but `sent` is called.
  void close();

 private:
  struct Frame {
    std::array<std::byte, AmHeader::kBytes> header;
    std::vector<Bytes> ranges;  // what is left of header and data; the header first
    bool large;
    std::function<void(bool)> sent;
  };
  using Frames = std::list<Frame>;  // whose elements stay where they are, for ranges point to them
  struct Burst;

  void transmit();
  void start_burst();
  void end_burst(Burst& burst);
  // What a call that sent ended with, an errno or 0: goes on, or waits, or is broken.
  void proceed(int error);
  void turn(const std::function<void()>& move);

  EventLoop& loop_;
  const int socket_;
  int watched_socket_;  // another descriptor of it, for the loop watches each once; -1 once closed
  Executor* const threads_;
  Handlers handlers_;
  Frames frames_;                               // but those of the burst
  std::shared_ptr<Burst> burst_;                // shared with the thread that sends it
  std::unique_ptr<EventLoop::Watch> writable_;  // while the kernel takes no more
  std::unique_ptr<EventLoop::Timer> breaking_;
  bool transmitting_ = false;
  bool halted_ = false;
};

}  // namespace precis
