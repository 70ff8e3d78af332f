// Which stored segments cover a token path. In memory only; holds the segments that are in service.
//
// A path is a row of block boundaries, each named by the digest of the block that ends there (the
// root names position 0). At each boundary stand the segments that cover it and those that end
// there or within the block after it, by the tokens that lie between (their tail). A segment in
// service has its parents in service, so if a boundary is here all before it are too: the longest
// match is found by bisection.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "cachesvc/catalog/segment_node.h"
#include "precis/block_digest.h"

namespace precis {

// Not thread-safe. Nodes are borrowed and must not change while they are in the index.
class PrefixIndex {
 public:
  struct Match {
    const SegmentNode* segment = nullptr;
    std::uint32_t end = 0;  // at most the segment's
  };

  void insert(const SegmentNode& segment);
  void erase(const SegmentNode& segment);

  // The segment at the end of the longest match: whole, or partial at a boundary. Of several the
  // one with more entries among the matched tokens (a partial segment's pro rata), then the newer.
  std::optional<Match> longest(const TokenPath& path) const;
  // The whole segment that ends last before the path does; null if there is none.
  const SegmentNode* last_whole(const TokenPath& path) const;

 private:
  // Sorted best first.
  struct Candidate {
    std::uint64_t entries;
    const SegmentNode* segment;
    bool operator<(const Candidate& other) const;
  };
  using Candidates = std::set<Candidate>;
  struct Boundary {
    Candidates covering;
    std::map<std::vector<TokenId>, Candidates> ending;  // by tail
  };

  const Boundary* find(const TokenPath& path, std::size_t block) const;
  std::size_t last_present(const TokenPath& path) const;
  template <typename Change>  // (Candidates&, Candidate)
  void change(const SegmentNode& segment, const Change& apply);
  static const Candidates* longest_tail(const Boundary& boundary, std::span<const TokenId> rest);
  static const SegmentNode* best_behind(const Boundary& boundary, std::span<const TokenId> rest,
                                        std::size_t position);

  std::unordered_map<Digest, Boundary> boundaries_;
};

}  // namespace precis
