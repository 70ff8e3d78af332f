// Ends calls that wait for the service: in Python's main thread by a signal, in any other thread by
// the Waits that the thread has adopted.
#pragma once

#include <atomic>
#include <memory>

namespace precis::python {

// The waits of one thread, which other threads may end.
class Waits {
 public:
  // Makes these the waits of the calling thread.
  void adopt() const;
  // Ends that thread's waiting calls, and its later ones, with kCanceled.
  void end() const { ended_->store(true); }

 private:
  // Shared with the thread, which may outlive this object.
  std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

// Whether the waiting call of this thread must end; called without the GIL. An exception that a
// signal handler raised stays set.
bool is_interrupted();

// From now on, signals such as Ctrl-C end waiting calls of Python's main thread if their handlers
// raise, and calls of a thread end by the Waits that it has adopted.
void notice_signals();

}  // namespace precis::python
