// Ends calls that wait for the service: by a signal in Python's main thread, and by a thread's
// Waits in any other thread.
#pragma once

#include <atomic>
#include <memory>

namespace precis::python {

// The waits of one thread, which other threads may end.
class Waits {
 public:
  // Called by the thread that these waits belong to from now on.
  void adopt() const;
  // Ends that thread's waiting calls, and its later ones, with kCanceled.
  void end() const { ended_->store(true); }

 private:
  // Shared with the thread, which may outlive this object.
  std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

// Whether the waiting call of this thread has to end; called without the GIL. An exception of a
// signal handler stays set.
bool is_interrupted();

// From now on, Ctrl-C and other signals end waiting calls of Python's main thread, which handles
// them, and every thread obeys the Waits that it has adopted.
void notice_signals();

}  // namespace precis::python
