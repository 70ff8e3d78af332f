// What ends calls that wait for the service: a signal, in Python's main thread; in any other,
// whoever has that thread's Waits.
#pragma once

#include <atomic>
#include <memory>

namespace precis::python {

// The waits of one thread, which others may end.
class Waits {
 public:
  // By the thread whose waits they are from now on.
  void adopt() const;
  // That thread's calls that wait end with kCanceled, those to come as well.
  void end() const { ended_->store(true); }

 private:
  // Shared with the thread, which may outlive this.
  std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

// Whether this thread's call that waits is to end; asked without the GIL. A handler's exception is
// left set.
bool is_interrupted();

// Ctrl-C and other signals end calls that wait, in Python's main thread, which they come to; and
// every thread heeds the Waits that it has adopted.
void notice_signals();

}  // namespace precis::python
