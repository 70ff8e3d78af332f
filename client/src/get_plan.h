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
  };
  ModelSpec model;
  Budget budget;
  std::vector<Link> links;
  std::size_t capacity_bytes = 0;
};

// kInvalidArgument naming the first segment that stores less than `keep` asks for. The match may
// have come from outside: links that form no chain are kInvalidArgument.
Result<GetPlan> plan_get(const LookupMatch& match, const Budget& keep);

msg::Get get_request(const GetPlan& plan, RemoteRegion destination);

}  // namespace precis
