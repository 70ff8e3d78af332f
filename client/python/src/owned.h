// Objects whose threads and sockets belong to the process that made them.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "errors.h"
#include "gil.h"

namespace precis::python {

// The process that made an object. A forked child has a copy of the object, but none of its
// threads, and shares its sockets with the parent.
class Maker {
 public:
  bool is_this_process() const { return process_ == getpid(); }
  // Raises Unavailable in a forked child. Needs the GIL.
  void check() const {
    if (!is_this_process()) {
      raise(Status::unavailable(
          "this client was opened in another process; connect again after fork"));
    }
  }

 private:
  pid_t process_ = getpid();
};

// Called when a client is opened. Children that are forked later exit without running the
// destructors of static C++ objects: RocksDB's would wait for threads that do not exist in the
// child.
void expect_forks();

// A shared object for Python. Destroying the last handle may wait for the service or a thread, so
// the GIL is released for it. In a forked child the object is leaked: its destructor would wait for
// threads that do not exist, or send to the service over the parent's sockets.
template <typename T>
class Owned {
 public:
  explicit Owned(std::shared_ptr<T> object) : object_(std::move(object)) {}
  Owned(Owned&&) noexcept = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (!object_) return;
    if (maker_.is_this_process()) {
      without_gil([this] { object_.reset(); });
    } else {
      new std::shared_ptr<T>(std::move(object_));
    }
  }

  // Raises Unavailable in a forked child. Needs the GIL.
  T& get() const {
    maker_.check();
    return *object_;
  }
  // The same, as a handle that may outlive this object.
  const std::shared_ptr<T>& shared() const {
    maker_.check();
    return object_;
  }

 private:
  Maker maker_;
  std::shared_ptr<T> object_;
};

}  // namespace precis::python
