// The model of the simulation: paths of segments, and what is known about each segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/random_kv.h"
#include "tests/simulate/simulation.h"

namespace precis::simulate {

constexpr std::uint32_t kSegments = 5;  // of a path

// The model's knowledge of a segment. kMaybe: an operation on it is in progress or has an unknown
// outcome, or it was not durable enough to be sure of it.
enum class State { kAbsent, kMaybe, kStored };

struct Segment {
  std::uint32_t end = 0;  // in tokens of the path
  testing::Kv kv;
  testing::Kv read_kv;  // as its readers get it
  // The bytes of its keys and values. Their alignment decides how a service reads them, so the
  // alignment must follow from the seed.
  std::shared_ptr<std::byte> memory;
  std::string recipe;  // with the budget a part of its id: each place on a path has one segment
  Budget keep;
  State state = State::kAbsent;
  bool synced = false;  // a stored one survives a loss of power
  // At most this many entries are stored, because the last change was a trim; none if unknown.
  std::optional<std::uint64_t> entries_max;
  std::optional<SegmentId> id;
  // The id may name only the segment's last part, or a segment into which it was consolidated may
  // serve its tokens too. Then a trim of the id limits no reader. The flag stays true, because a
  // removal may be lost.
  bool is_elsewhere = false;
};

struct Path {
  std::vector<TokenId> tokens;
  std::vector<Segment> segments;
  std::uint64_t changes = 0;  // begun
  bool changing = false;      // one client at a time changes a path
  // Other paths leave this one at block boundaries up to here: its tokens before them may stay
  // stored after a removal.
  std::uint32_t left_at_most = 0;
  std::string session;
  std::optional<SegmentId> tip;  // of the session; none if unknown
  std::size_t tip_segment = 0;   // its index, if known
  // The session is pinned for certain, not pinned for certain, or unknown.
  std::optional<bool> pinned = false;
};

// A path of kSegments segments with random tokens, rows, recipes and budgets.
Path make_path(Simulation& machine, std::mt19937& kv_random, const ModelSpec& model);

// A segment of another path, which leaves `path` at token `begin`. It is put as `like` was.
Segment make_branch(Simulation& machine, std::mt19937& kv_random, const ModelSpec& model,
                    const Path& path, const Segment& like, std::uint32_t begin,
                    std::vector<TokenId>& tokens);

// The first of the segments that may be one with segment n, because they were consolidated.
std::size_t first_with(const Path& path, std::size_t n);
// Whether segment n may have been consolidated with its neighbours.
bool may_be_consolidated(const Path& path, std::size_t n);

// The number of segments from the root that are stored, unless the service dropped them by itself,
// and the number of those that may be stored.
std::size_t stored_of(const Path& path);
std::size_t possible(const Path& path);

// The tokens of the first `segments` segments.
std::vector<TokenId> tokens_of(const Path& path, std::size_t segments);
// For a put of segment n, whose parent has an id.
PutOptions options_of(const Path& path, std::size_t n);

}  // namespace precis::simulate
