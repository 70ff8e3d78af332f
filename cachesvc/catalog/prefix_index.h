// Which stored segments cover a token path. In memory only; holds the segments that are in service.
//
// A path is a row of block boundaries, each named by the digest of the block that ends there (the
// root names position 0). At each boundary stand the segments that cover it and those that end
// there or within the block after it, by the tokens that lie between (their tail). A segment in
// service has its parents in service, and they are at least as faithful (faithful.h). So where a
// boundary is covered by something that is faithful enough, all before it are too: the longest
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

  // Both see only what is faithful up to `faithful_ppm` at least.
  //
  // The segment at the end of the longest match: whole, or partial at a boundary. Of several the
  // more faithful, then the one with more entries among the matched tokens (a partial segment's pro
  // rata), then the newer.
  std::optional<Match> longest(const TokenPath& path, std::uint32_t faithful_ppm) const;
  // The whole segment that ends last before the path does; null if there is none.
  const SegmentNode* last_whole(const TokenPath& path, std::uint32_t faithful_ppm) const;

 private:
  // Sorted best first, so that the first says whether any is faithful enough.
  struct Candidate {
    std::uint64_t entries;
    const SegmentNode* segment;
    bool operator<(const Candidate& other) const;
  };
  using Candidates = std::set<Candidate>;
  struct Boundary {
    Candidates covering;
    std::map<std::vector<TokenId>, Candidates> ending;  // by tail, none of them empty
  };
  // What is looked for.
  struct Query {
    const TokenPath& path;
    std::uint32_t faithful_ppm;
    bool suits(const Candidates& candidates) const {
      return !candidates.empty() && suits(*candidates.begin());
    }
    bool suits(const Candidate& candidate) const {
      return candidate.segment->faithful_ppm >= faithful_ppm;
    }
    // The first, if any, that suits and `fits` its row.
    template <typename Fits>
    const SegmentNode* best(const Candidates& candidates, const Fits& fits) const;
  };

  const Boundary* find(const TokenPath& path, std::size_t block) const;
  std::size_t last_covered(const Query& query) const;
  template <typename Change>  // (Candidates&, Candidate)
  void change(const SegmentNode& segment, const Change& apply);
  static const Candidates* longest_tail(const Query& query, const Boundary& boundary,
                                        std::span<const TokenId> rest);
  static const SegmentNode* best_behind(const Query& query, const Boundary& boundary,
                                        std::size_t position, std::size_t end);

  std::unordered_map<Digest, Boundary> boundaries_;
};

}  // namespace precis
