// Removes or trims many segments that a filter chooses: first it counts them, then it asks, then it
// goes on until Ctrl-C.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/json.h"
#include "client/cli/segment_filter.h"

namespace precis::cli {

struct ChosenSegment {
  SegmentId id, parent;
  std::uint32_t begin = 0;
  std::uint32_t children = 0;
  std::uint64_t entries = 0, stored_bytes = 0;
};

// Each segment takes 56 bytes of memory. Those past kChosenMax are left for another run.
struct Chosen {
  std::vector<ChosenSegment> segments;  // parents before children
  std::uint64_t stored_bytes = 0;
  bool more = false;
};
// kInvalidArgument unless exactly one of them chooses: an id, or a filter with a condition.
Status check_choice(const std::string& id, const SegmentFilter& filter);

inline constexpr std::size_t kChosenMax = 4'000'000;
Result<Chosen> choose(Client& client, const SegmentFilter& filter);
ChosenSegment chosen_of(const msg::SegmentInfo& row);

// Takes out each segment with a child that is not chosen or was taken out. Returns their number.
std::size_t keep_parents(Chosen& chosen);

// "12 segments, 1.25 GiB".
std::string chosen_text(const Chosen& chosen);

struct LeftSegment {
  SegmentId id;
  Status why;
};
Json left_json(const std::vector<LeftSegment>& left);
// A line for the number of segments that were left, with the first reason; empty if there are none.
std::string left_text(const std::vector<LeftSegment>& left, const char* verb);

struct Removal {
  std::uint64_t segments = 0, bytes = 0;
  std::vector<LeftSegment> left;  // refused
  Status status;                  // kCanceled after Ctrl-C; else the error that ended it early
};
// Removes them, children before parents. A segment that is gone already, or that the filter no
// longer accepts because it was used meanwhile, is skipped.
Removal remove_chosen(Client& client, const Chosen& chosen, const SegmentFilter& filter,
                      bool recursive);

}  // namespace precis::cli
