// Objects whose threads and sockets are of the process that made them.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "errors.h"
#include "gil.h"

namespace precis::python {

// The process that an object was made in. A child that was forked has a copy of the object, but
// none of its threads, and shares its sockets with the parent.
class Maker {
 public:
  bool is_this_process() const { return process_ == getpid(); }
  // Raises Unavailable in a forked child. Needs the GIL.
  void check() const {
    if (!is_this_process()) {
      raise(Status::unavailable(
          "this client was opened in another process; connect anew after fork"));
    }
  }

 private:
  pid_t process_ = getpid();
};

// By who opens a client. Children that are forked from then on end, once Python has, without the
// destructors of C++'s static objects: those of RocksDB's wait for threads that are not there.
void expect_forks();

// A shared object for Python. Where its last handle goes, that may wait for the service or for a
// thread, and other Python threads go on. In a forked child it is left as it is: its destructor
// would wait for threads that are not there, or speak to the service in the parent's name.
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
  // The same, to be held beyond this.
  const std::shared_ptr<T>& shared() const {
    maker_.check();
    return object_;
  }

 private:
  Maker maker_;
  std::shared_ptr<T> object_;
};

}  // namespace precis::python
