// Admits puts by bytes: a put begins when everything that it will stage fits beside what the puts
// in progress will stage. So puts do not deadlock, each holding memory that another one waits for.
// Loop thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/fair_wait_queue.h"
#include "precis/status.h"

namespace precis {

class PutRoom {
 public:
  // `size_bytes`: the part of the arena that puts may use; a put that is alone may use more. Bytes
  // that a put keeps outside the arena count too, so that they are bounded as well.
  // `rest_changed` is told what the admitted puts of a tenant leave of its limit; none: it has no
  // limit.
  using RestChanged = std::function<void(const std::string& tenant, std::optional<std::size_t>)>;
  PutRoom(EventLoop& loop, std::size_t size_bytes, std::chrono::milliseconds wait,
          RestChanged rest_changed)
      : loop_(loop),
        size_bytes_(size_bytes),
        wait_(wait),
        queue_(loop, wait),
        rest_changed_(std::move(rest_changed)) {}

  // A put's bytes: counted for its tenant from the beginning, and in the room once it is admitted.
  // Its destructor returns them.
  class Place {
   public:
    Place(PutRoom& room, std::string tenant, std::size_t bytes);
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    // Counts more bytes, without a wait: the put has begun. The room may then hold more than its
    // size, and puts that have not begun wait.
    void add(std::size_t bytes);
    // Returns all but `left` bytes.
    void shrink(std::size_t left);

   private:
    friend class PutRoom;
    void admit();
    PutRoom& room_;
    const std::string tenant_;
    std::size_t bytes_;
    bool admitted_ = false;
  };

  // Waits for its turn, fair between tenants and their connections. kRejected if the bytes did not
  // become free within the wait, or at once if they exceed the limit of the tenant together with
  // those of its other puts. kOutOfSpace if they exceed it alone. kUnavailable after stop().
  Task<Result<std::unique_ptr<Place>>> enter(std::size_t bytes, Owner owner);
  // Whether a put of these bytes would enter without a wait.
  bool is_free(std::size_t bytes) const {
    return bytes == 0 || (queue_.size() == 0 && fits(bytes));
  }
  void stop();
  std::size_t waiting() const { return queue_.size(); }
  const Labeled<Histogram>& waits() const { return queue_.waits(); }  // loop thread only
  std::size_t taken_bytes() const { return taken_; }
  // The bytes that the puts of a tenant stage, and that those waiting for room will stage.
  std::size_t taken_by(const std::string& tenant) const;
  // In bytes, by tenant. A put that has begun stays.
  using Limits = std::map<std::string, std::uint64_t, std::less<>>;
  void set_limits(Limits limits);
  // The wait of requests that arrive from now on. Loop thread only.
  void set_wait(std::chrono::milliseconds wait) {
    wait_ = wait;
    queue_.set_wait(wait);
  }

 private:
  Status check_tenant(const std::string& tenant, std::size_t bytes) const;
  using ByTenant = std::map<std::string, std::size_t, std::less<>>;
  static void subtract(ByTenant& from, const std::string& tenant, std::size_t bytes);
  void tell_rest(const std::string& tenant) const;  // if it has a limit
  bool fits(std::size_t bytes) const { return taken_ == 0 || taken_ + bytes <= size_bytes_; }

  EventLoop& loop_;
  const std::size_t size_bytes_;
  std::chrono::milliseconds wait_;
  FairWaitQueue queue_;
  const RestChanged rest_changed_;
  std::size_t taken_ = 0;
  ByTenant taken_by_, admitted_by_;
  Limits limits_;
  bool stopped_ = false;
};

}  // namespace precis
