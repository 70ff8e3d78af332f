#include "precis/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "precis/block_digest.h"
#include "precis/little_endian.h"
#include "precis/mixed.h"

namespace precis::cluster {
namespace {

// How much a shard prefers a member.
std::uint64_t preference(const Member& member, std::uint32_t shard) {
  return mixed(member.key ^ mixed(shard));
}

// A shard that may move, and the member with room that it prefers.
struct Move {
  std::uint32_t shard = 0, to = kNobody;
  std::uint64_t preferred = 0;
};
bool before(const Move& a, const Move& b) {
  return a.preferred != b.preferred ? a.preferred > b.preferred : a.shard < b.shard;
}

class Placement {
 public:
  Placement(std::span<const Member> members, std::vector<std::uint32_t> owners)
      : members_(members), owners_(std::move(owners)), room_(members.size()) {
    std::vector<std::uint32_t> owned(members.size());
    for (const std::uint32_t owner : owners_) {
      if (owner != kNobody) ++owned[owner];
    }
    const auto quotas = shard_quotas(members, owned, static_cast<std::uint32_t>(owners_.size()));
    for (std::size_t m = 0; m < members.size(); ++m) {
      room_[m] = std::int64_t{quotas[m]} - owned[m];
    }
  }

  std::vector<std::uint32_t> placed() && {
    std::vector<Move> moves = released();
    // A full member gets no more, so the rest choose again among the others.
    while (!moves.empty()) {
      std::ranges::sort(moves, before);
      std::erase_if(moves, [this](const Move& move) { return moved(move); });
      for (Move& move : moves) move = preferred(move.shard);
      std::erase_if(moves, [](const Move& move) { return move.to == kNobody; });
    }
    return std::move(owners_);
  }

 private:
  Move preferred(std::uint32_t shard) const {
    Move best{shard};
    for (std::uint32_t m = 0; m < members_.size(); ++m) {
      if (room_[m] <= 0) continue;
      const std::uint64_t value = preference(members_[m], shard);
      if (best.to == kNobody || value > best.preferred) best = {shard, m, value};
    }
    return best;
  }
  bool moved(const Move& move) {
    if (room_[move.to] <= 0) return false;
    --room_[move.to];
    owners_[move.shard] = move.to;
    return true;
  }
  // The shards without an owner, and each owner's shards above its quota: those that most prefer
  // another member.
  std::vector<Move> released() {
    std::vector<Move> moves;
    std::vector<std::vector<Move>> surplus(members_.size());
    for (std::uint32_t shard = 0; shard < owners_.size(); ++shard) {
      const std::uint32_t owner = owners_[shard];
      if (owner != kNobody && room_[owner] >= 0) continue;
      const Move move = preferred(shard);
      if (move.to != kNobody) (owner == kNobody ? moves : surplus[owner]).push_back(move);
    }
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(-room_[m], 0));
      std::ranges::sort(surplus[m], before);
      surplus[m].resize(std::min(wanted, surplus[m].size()));
      moves.insert(moves.end(), surplus[m].begin(), surplus[m].end());
    }
    return moves;
  }

  const std::span<const Member> members_;
  std::vector<std::uint32_t> owners_;
  std::vector<std::int64_t> room_;  // quota less owned shards
};

}  // namespace

std::uint64_t member_key(std::string_view node) {
  const Digest digest = sha256(std::as_bytes(std::span(node)));
  return LeReader(std::as_bytes(std::span(digest.bytes))).get<std::uint64_t>();
}

std::vector<std::uint32_t> shard_quotas(std::span<const Member> members,
                                        std::span<const std::uint32_t> owned,
                                        std::uint32_t shards) {
  std::uint64_t weights = 0;
  for (const Member& member : members) weights += member.weight;
  std::vector<std::uint32_t> quotas(members.size());
  if (weights == 0) return quotas;
  for (std::size_t m = 0; m < members.size(); ++m) {
    quotas[m] = static_cast<std::uint32_t>(shards * std::uint64_t{members[m].weight} / weights);
  }
  const auto rest = shards - std::reduce(quotas.begin(), quotas.end());
  std::vector<std::uint32_t> order(members.size());
  std::iota(order.begin(), order.end(), 0);
  const auto remainder = [&](std::uint32_t m) {
    return shards * std::uint64_t{members[m].weight} % weights;
  };
  std::erase_if(order, [&](std::uint32_t m) { return remainder(m) == 0; });
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const bool more_a = owned[a] > quotas[a], more_b = owned[b] > quotas[b];
    if (more_a != more_b) return more_a;
    if (remainder(a) != remainder(b)) return remainder(a) > remainder(b);
    return members[a].key < members[b].key;
  });
  for (std::uint32_t k = 0; k < rest; ++k) ++quotas[order[k]];
  return quotas;
}

std::vector<std::uint32_t> place_shards(std::span<const Member> members,
                                        std::vector<std::uint32_t> owners) {
  return Placement(members, std::move(owners)).placed();
}

}  // namespace precis::cluster
