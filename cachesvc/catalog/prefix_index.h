// An index from token paths to the stored segments that cover them. In memory only; it holds the
// segments in service.
//
// A path is a sequence of block boundaries. A boundary is named by the digest of the block that
// ends there, and position 0 by the root. Each boundary lists the segments that cover it, and the
// segments that end there or within the next block, by the tokens in between (their tail). The
// parents of a segment in service are in service and at least as faithful (faithful.h). So if a
// sufficiently faithful segment covers a boundary, all earlier boundaries are covered too, and a
// bisection finds the last of them. The longest match ends there, or earlier if the segments there
// are matched only whole.
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

// Not thread-safe. The index borrows its nodes; they must not change while they are in it, except
// as begin_change() allows.
class PrefixIndex {
 public:
  struct Match {
    const SegmentNode* segment = nullptr;
    std::uint32_t end = 0;  // at most the segment's end
  };

  void insert(const SegmentNode& segment);
  void erase(const SegmentNode& segment);
  // Between these two calls, a segment's entries, faithfulness and time of creation may change, but
  // not its tokens. For several segments, first call begin_change() for each, then change them all,
  // then call end_change() for each. Do not search in between. A segment without rivals costs
  // nothing.
  void begin_change(const SegmentNode& segment);
  void end_change(const SegmentNode& segment);

  // Both functions see only segments that are faithful up to at least `faithful_ppm`.
  //
  // longest() returns the segment at the end of the longest match, whole or, unless it is
  // whole_only, partial up to a boundary. Among several it prefers the most faithful, then the one
  // with the most entries among the matched tokens (pro rata for a partial segment), then the
  // newest.
  std::optional<Match> longest(const TokenPath& path, std::uint32_t faithful_ppm) const;
  // Whether a segment has this block.
  bool covers(const Digest& block) const;
  // Returns the whole segment with the last end before the path's end, or null if there is none.
  const SegmentNode* last_whole(const TokenPath& path, std::uint32_t faithful_ppm) const;

 private:
  // Sorted best first: if the first is not faithful enough, none is. The order depends on present
  // values of the segments. So the values of a single candidate may change in place.
  struct Candidate {
    std::uint32_t position;  // its entries among the tokens before this one count
    const SegmentNode* segment;
    bool operator<(const Candidate& other) const;
  };
  using Candidates = std::set<Candidate>;
  struct Boundary {
    Candidates covering;    // those that can be matched up to here
    Candidates whole_only;  // those that go through here, or end here, and are matched only whole
    std::map<std::vector<TokenId>, Candidates> ending;  // by tail; no set is empty
  };
  // The input of a search.
  struct Query {
    const TokenPath& path;
    std::uint32_t faithful_ppm;
    bool suits(const Candidates& candidates) const {
      return !candidates.empty() && suits(*candidates.begin());
    }
    bool suits(const Boundary& boundary) const {
      return suits(boundary.covering) || suits(boundary.whole_only);
    }
    bool suits(const Candidate& candidate) const {
      return candidate.segment->faithful_ppm >= faithful_ppm;
    }
    // Returns the first candidate that suits and that `fits`, or null.
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
