// Limits the memory for digests of paths in small blocks. In blocks of at least kBlockTokens
// tokens, a path's digests take no more memory than its tokens, which the limit on messages covers.
// In smaller blocks they take up to eight times as much. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cachesvc/base/event_loop.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/fair_wait_queue.h"
#include "precis/limits.h"
#include "precis/types.h"

namespace precis {

class DigestRoom {
 public:
  static constexpr std::uint32_t kBlockTokens = sizeof(Digest) / sizeof(TokenId);

  explicit DigestRoom(EventLoop& loop);

  // A path's bytes; its destructor returns them.
  class Place {
   public:
    Place(DigestRoom& room, std::size_t bytes) : room_(room), bytes_(bytes) {
      room_.taken_ += bytes;
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();

   private:
    DigestRoom& room_;
    const std::size_t bytes_;
  };

  // Waits for its turn, fair between tenants and their connections. The wait ends, because every
  // admitted path ends by itself. Null, at once, for a path in larger blocks, which needs no
  // admission.
  Task<std::unique_ptr<Place>> enter(std::size_t num_tokens, std::uint32_t block_tokens,
                                     Owner owner);
  std::size_t taken_bytes() const { return taken_; }
  std::size_t waiting() const { return queue_.size(); }

 private:
  bool fits(std::size_t bytes) const {
    return taken_ == 0 || taken_ + bytes <= limits::kDigestBytesMax;
  }

  EventLoop& loop_;
  FairWaitQueue queue_;
  std::size_t taken_ = 0;
};

}  // namespace precis
