// S3-FIFO (Yang et al., SOSP 2023). New keys enter a small queue, and only keys that are used there
// move to the main queue; so a scan does not evict the keys in use. In the paper, the small queue
// has a tenth of the bytes. Here its share adapts to the load, as in ARC (Megiddo and Modha, FAST
// 2003): the share grows if a key returns soon after it left the small queue, and shrinks if a key
// returns that left the main queue. ./dev bench eviction compares both with plain LRU on a trace.
#include <algorithm>
#include <list>
#include <map>

#include "cachesvc/store/eviction_policy.h"

namespace precis {
namespace {

constexpr unsigned kUsesMax = 3;
constexpr double kFirstShare = 0.5, kLeastShare = 0.1, kMostShare = 0.9;  // of the small queue
constexpr std::size_t kGhostBytes = 2;  // per queue, as a multiple of the bytes kept

struct Member {
  HotKey key;
  std::size_t size_bytes;
  unsigned uses = 0;
};

// A FIFO queue with the sum of its members' sizes.
class Queue {
 public:
  using Place = std::list<Member>::iterator;
  Place push(const Member& member) {
    bytes_ += member.size_bytes;
    return members_.insert(members_.end(), member);
  }
  void erase(Place place) {
    bytes_ -= place->size_bytes;
    members_.erase(place);
  }
  Place first() { return members_.begin(); }
  // The first member whose key satisfies `holds`; null if there is none.
  const Member* find(const std::function<bool(const HotKey&)>& holds) const {
    const auto found =
        std::ranges::find_if(members_, [&](const Member& each) { return holds(each.key); });
    return found == members_.end() ? nullptr : &*found;
  }
  bool empty() const { return members_.empty(); }
  std::size_t bytes() const { return bytes_; }
  std::size_t size() const { return members_.size(); }

 private:
  std::list<Member> members_;
  std::size_t bytes_ = 0;
};

// Recently evicted keys, without their bytes.
class Ghosts {
 public:
  void push(const Member& gone, std::size_t limit_bytes) {
    erase(gone.key);
    places_.emplace(gone.key, queue_.push(gone));
    while (queue_.bytes() > limit_bytes) erase(HotKey(queue_.first()->key));
  }
  // Removes the key; returns whether it was present.
  bool erase(const HotKey& key) {
    const auto place = places_.find(key);
    if (place == places_.end()) return false;
    queue_.erase(place->second);
    places_.erase(place);
    return true;
  }
  std::size_t bytes() const { return queue_.bytes(); }

 private:
  Queue queue_;
  std::map<HotKey, Queue::Place> places_;
};

class S3FifoPolicy final : public EvictionPolicy {
 public:
  void added(const HotKey& key, std::size_t size_bytes) override {
    const auto more = [](const Ghosts& of, const Ghosts& than) {
      return std::max(1.0, static_cast<double>(of.bytes()) /
                               static_cast<double>(std::max<std::size_t>(than.bytes(), 1)));
    };
    const double step = static_cast<double>(size_bytes) /
                        static_cast<double>(std::max<std::size_t>(bytes() + size_bytes, 1));
    bool known = true;
    if (small_ghosts_.erase(key)) {
      share_ = std::min(kMostShare, share_ + step * more(main_ghosts_, small_ghosts_));
    } else if (main_ghosts_.erase(key)) {
      share_ = std::max(kLeastShare, share_ - step * more(small_ghosts_, main_ghosts_));
    } else {
      known = false;
    }
    Queue& queue = known ? main_ : small_;
    const bool fresh = places_.emplace(key, Standing{&queue, queue.push({key, size_bytes})}).second;
    PRECIS_CHECK(fresh);
  }

  void used(const HotKey& key) override {
    unsigned& uses = places_.at(key).place->uses;
    uses = std::min(uses + 1, kUsesMax);
  }

  void removed(const HotKey& key) override {
    const auto standing = places_.find(key);
    PRECIS_CHECK(standing != places_.end());
    standing->second.queue->erase(standing->second.place);
    places_.erase(standing);
  }

  std::optional<HotKey> victim(const std::function<bool(const HotKey&)>& may_go) override {
    std::size_t in_main = 0;  // steps taken in the main queue
    // Each step takes one use from a member, or moves a member that may not be evicted to the end.
    for (std::size_t step = 0; step < places_.size() * (kUsesMax + 2); ++step) {
      const bool is_small_due = main_rests_ > 0 || static_cast<double>(small_.bytes()) >=
                                                       share_ * static_cast<double>(bytes());
      const bool from_small = main_.empty() || (!small_.empty() && is_small_due);
      Queue& queue = from_small ? small_ : main_;
      const Member member = *queue.first();
      if (member.uses == 0 && may_go(member.key)) {
        Ghosts& ghosts = from_small ? small_ghosts_ : main_ghosts_;
        ghosts.push(member, kGhostBytes * bytes());
        if (main_rests_ > 0) --main_rests_;
        return member.key;
      }
      // A member of the small queue moves to the main queue, and its uses are reset.
      const unsigned left = from_small || member.uses == 0 ? 0 : member.uses - 1;
      queue.erase(queue.first());
      places_.at(member.key) = {&main_, main_.push({member.key, member.size_bytes, left})};
      if (!from_small && ++in_main >= main_.size() * (kUsesMax + 1)) {
        main_rests_ = main_.size();
        in_main = 0;
      }
    }
    // No step reached an evictable key. There may be one in the small queue while all keys of the
    // main queue are in use.
    for (Queue* queue : {&small_, &main_}) {
      if (const Member* const found = queue->find(may_go)) return found->key;
    }
    return std::nullopt;
  }

 private:
  struct Standing {
    Queue* queue;
    Queue::Place place;
  };
  std::size_t bytes() const { return small_.bytes() + main_.bytes(); }

  Queue small_, main_;
  std::map<HotKey, Standing> places_;
  Ghosts small_ghosts_, main_ghosts_;
  // The number of next victims to take from the small queue, because nothing in the main queue can
  // be evicted. A full scan of the main queue costs its length, so it is repeated after that many
  // victims.
  std::size_t main_rests_ = 0;
  // Share of the bytes; if the small queue has more, it is evicted first.
  double share_ = kFirstShare;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_s3_fifo_policy() { return std::make_unique<S3FifoPolicy>(); }

}  // namespace precis
