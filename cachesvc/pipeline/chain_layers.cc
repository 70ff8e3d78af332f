#include "cachesvc/pipeline/chain_layers.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace precis {
namespace {

// The reads of one layer at a time. More would make other requests of the same client wait, and
// would not be faster.
constexpr std::size_t kReadsAtOnce = 8;

}  // namespace

ChainLayers::ChainLayers(const Parts& parts, std::vector<Catalog::Row> links,
                         std::uint32_t num_layers, Owner owner, std::uint32_t ahead,
                         Follows follows)
    : parts_(parts),
      links_(std::move(links)),
      num_layers_(num_layers),
      owner_(std::move(owner)),
      ahead_(ahead),
      follows_(std::move(follows)),
      cold_(num_layers) {}

Task<Result<ChainLayers::Leases>> ChainLayers::lease(std::uint32_t layer) {
  PRECIS_CO_TRY(co_await begin(layer));
  auto leases = co_await begun_.front();
  begun_.pop_front();
  co_return leases;
}

Task<bool> ChainLayers::doubt(std::uint32_t layer, Leases& leases, const Status& why) {
  if (doubted_ == layer) co_return false;
  doubted_ = layer;
  leases.clear();
  co_await end();  // a get that waits for memory holds none
  parts_.cold.invalidate(links_, layer, why);
  co_return true;
}

Task<void> ChainLayers::end() {
  for (auto& unused : begun_) (void)co_await unused;
  begun_.clear();
}

// A get that waits for memory holds none, except for earlier layers, which are freed when they are
// sent. So gets never deadlock. Layers are read ahead in order, into free memory only.
Task<Status> ChainLayers::begin(std::uint32_t layer) {
  for (auto next = static_cast<std::uint32_t>(layer + begun_.size());
       next < num_layers_ && next <= layer + ahead_; ++next) {
    const auto room_of = [&](auto&& is_wanted) {
      std::vector<PayloadMemory::Want> wants;
      for (std::size_t link = 0; link < links_.size(); ++link) {
        if (is_wanted(link)) wants.push_back({links_[link]->layer_bytes[next]});
      }
      return wants;
    };
    Leases leases;
    Result<PayloadMemory::Pieces> room = PayloadMemory::Pieces{};
    if (next > layer) {
      room = parts_.memory.try_free(room_of([&](std::size_t link) {
        const Catalog::Row& row = links_[link];
        return !parts_.hot_tier.contains(row->id, next, row);
      }));
      if (!room.ok()) break;
      leases = find_hot(next);
    } else {
      leases = find_hot(next);
      room = parts_.memory.try_acquire(room_of([&](std::size_t link) { return !leases[link]; }));
      if (!room.ok()) {
        leases.clear();
        room = co_await parts_.memory.acquire(room_of([](std::size_t) { return true; }), owner_);
        PRECIS_CO_TRY(room.status());
        leases = find_hot(next);  // other gets may have read the layer
        for (std::size_t link = leases.size(); link-- > 0;) {
          if (leases[link]) room->erase(room->begin() + static_cast<std::ptrdiff_t>(link));
        }
      }
    }
    begun_.emplace_back(fill(next, std::move(leases), std::move(room).value()));
  }
  co_return Status();
}

ChainLayers::Leases ChainLayers::find_hot(std::uint32_t layer) const {
  Leases leases;
  for (const Catalog::Row& row : links_) {
    leases.push_back(parts_.hot_tier.find(row->id, layer, row));
  }
  return leases;
}

Task<Result<ChainLayers::Leases>> ChainLayers::fill(std::uint32_t layer, Leases leases,
                                                    PayloadMemory::Pieces room) {
  parts_.metrics.layers_hot += static_cast<std::int64_t>(leases.size() - room.size());
  if (room.empty()) co_return leases;
  cold_[layer] = true;
  auto piece = room.begin();
  Status status;
  std::deque<Started<Status>> reads;
  for (std::size_t link = 0; link < leases.size() || !reads.empty();) {
    if (link < leases.size() && reads.size() < kReadsAtOnce) {
      if (!leases[link]) reads.emplace_back(read(layer, link, std::move(*piece++), leases[link]));
      ++link;
      continue;
    }
    const Status done = co_await reads.front();
    reads.pop_front();
    if (status.ok()) status = done;
  }
  PRECIS_CO_TRY(status);
  co_return leases;
}

Task<Status> ChainLayers::read(std::uint32_t layer, std::size_t link,
                               PayloadMemory::Pieces::value_type piece, HotTier::Lease& lease) {
  for (;;) {
    const Catalog::Row row = links_[link];
    piece->shrink(row->layer_bytes[layer]);  // if the segment was trimmed meanwhile
    const Status status = co_await parts_.cold.read_into(row, layer, piece->bytes(), owner_);
    if (status.ok()) {
      const auto present = parts_.catalog.served_now(row);
      lease = present.ok() && *present == row
                  ? parts_.hot_tier.insert(row->tenant, row->id, layer, row, std::move(piece))
                  : parts_.hot_tier.lend(std::move(piece));  // no longer stored
      co_return status;
    }
    if (links_[link] == row && !follow(link)) co_return status;
  }
}

// Replaces the row of a link that was trimmed or put again meanwhile, if the new row still holds
// what the caller reads.
bool ChainLayers::follow(std::size_t link) {
  Catalog::Row& row = links_[link];
  auto present = parts_.catalog.served_now(row);
  if (!present.ok() || *present == row || !same_put(**present, *row)) return false;
  if (!follows_ || !follows_(link, **present)) return false;
  // The new row's layers must also fit into the memory acquired for the old ones.
  if (!std::ranges::equal((*present)->layer_bytes, row->layer_bytes, std::ranges::less_equal())) {
    return false;
  }
  row = std::move(present).value();
  return true;
}

}  // namespace precis
