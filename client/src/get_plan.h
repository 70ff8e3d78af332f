// What a get asks for, worked out from its match before anything is sent: the entries of every link
// at the reader's budget, and so the memory that surely holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "precis/client.h"
#include "precis/messages.h"
#include "precis/types.h"

namespace precis {

struct GetPlan {
  struct Link {
    SegmentId segment;
    std::uint32_t begin = 0, end = 0;  // token positions of the segment
    std::uint32_t matched_end = 0;     // entries from here on are not the reader's
    std::uint64_t entries = 0;         // T: seats up to this are served
    // [num_layers, num_heads] entries that are served of each; empty where T says.
    std::vector<std::uint32_t> counts = {};
    std::uint64_t served_max = 0;                           // entries of these heads
    std::uint64_t created_unix_ms = 0, stored_entries = 0;  // as it was matched
  };
  ModelSpec model;
  Budget budget;
  std::uint32_t head_begin = 0, num_heads = 0;  // those asked for
  std::vector<Link> links;
  std::size_t capacity_bytes = 0;

  bool counted() const { return !links.empty() && !links.front().counts.empty(); }
  // Whether served_max is what is served. How many of a cut's entries some heads have is not known.
  bool is_exact() const { return counted() || num_heads == model.num_kv_heads; }
};

// kInvalidArgument naming the first segment that stores less than `keep` asks for. The match may
// have come from outside: links that form no chain, and counts that can't be theirs, are
// kInvalidArgument.
Result<GetPlan> plan_get(const LookupMatch& match, const Budget& keep,
                         const GetOptions& options = {});

// That the match's plan is of its model's shape and what its counts, where it has some, add up to.
Status check_plan(const LookupMatch& match);

msg::Get get_request(const GetPlan& plan, RemoteRegion destination);

}  // namespace precis
