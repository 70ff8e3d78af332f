// The plan of a get, computed from its match before any request is sent: the entries of every link
// at the reader's budget, and the memory that they need at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "precis/client.h"
#include "precis/messages.h"
#include "precis/record_format.h"
#include "precis/types.h"

namespace precis {

struct GetPlan {
  struct Link {
    SegmentId segment;
    std::uint32_t begin = 0, end = 0;  // token positions of the segment
    std::uint32_t matched_end = 0;     // entries from here on are left out
    std::uint64_t entries = 0;         // T: entries with seats up to this are served
    // [num_layers, num_heads] entries served of each head; empty if `entries` decides.
    std::vector<std::uint32_t> counts = {};
    std::uint64_t served_max = 0;                           // entries of these heads, at most
    std::uint64_t created_unix_ms = 0, stored_entries = 0;  // at the time of the lookup
  };
  ModelSpec model;
  Budget budget;
  std::uint32_t head_begin = 0, num_heads = 0;  // the heads asked for
  std::vector<Link> links;
  std::vector<EntryForm> forms;    // [num_links], as they are served
  std::size_t capacity_bytes = 0;  // of the memory that the service writes to
  std::size_t decoded_bytes = 0;   // of the memory for all rows if some are coded, otherwise 0
  std::string traceparent = {};    // as it is sent

  // The decoded rows lie behind the served bytes.
  std::size_t memory_bytes() const { return align_section(capacity_bytes) + decoded_bytes; }
  bool counted() const { return !links.empty() && !links.front().counts.empty(); }
  // Whether the link's served_max is exact. A match without counts does not tell how many entries
  // of a cut are in only some of the heads, or in the layers that see the link.
  bool is_exact(const Link& link) const {
    if (counted()) return true;
    for (std::uint32_t l = 0; l < model.windows.size(); ++l) {
      if (is_out_of_sight(model.windows, l, link.end, links.back().matched_end)) return false;
    }
    return num_heads == model.num_kv_heads;
  }
};

// kInvalidArgument naming the first segment that stores less than `keep` asks for. The match may be
// untrusted: links that do not form a chain and impossible counts are kInvalidArgument, too.
Result<GetPlan> plan_get(const LookupMatch& match, const Budget& keep,
                         const GetOptions& options = {});

// Checks that the match's plan has its model's shape and equals the sum of its counts, if it has
// counts.
Status check_plan(const LookupMatch& match);

// As much of a traceparent as a request may have.
std::string sent_traceparent(const std::string& given);

msg::Get get_request(const GetPlan& plan, RemoteRegion destination);

}  // namespace precis
