// The result of a lookup, and its form as bytes, which lets another client read the match. Part of
// client.h, which includes it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "precis/messages.h"
#include "precis/options.h"
#include "precis/status.h"
#include "precis/types.h"
#include "precis/view.h"

namespace precis {

struct LookupMatch : msg::Match {
  Model model;
  LookupOptions options = {};  // of the lookup
  // The shard of the cluster that it is in (shards.h). Absent: the service is in no cluster.
  std::optional<std::uint32_t> shard = {};
  explicit operator bool() const { return matched_tokens > 0; }
  // Whether the counts of its links, `plan` and `bytes` are exactly what a get transfers.
  bool counted() const { return !links.empty() && !links.front().counts.empty(); }
};

// The match as bytes, for another client of the same tenant: in another process or on another host.
// `tokens`: the matched tokens, which are included in the bytes; may be empty.
std::vector<std::byte> to_bytes(const LookupMatch& match, std::span<const TokenId> tokens = {});
// `tokens`, if not null, is set to the tokens that came with the match. The bytes may be untrusted.
// kInvalidArgument naming the field if they are not a readable match; kVersionMismatch if a newer
// build wrote them.
Result<LookupMatch> match_from_bytes(Bytes bytes, std::vector<TokenId>* tokens = nullptr);

}  // namespace precis
