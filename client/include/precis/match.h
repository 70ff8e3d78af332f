// What a lookup found, and its bytes, for another client to read it by. Part of client.h, which
// includes it.
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
  LookupOptions options = {};  // that it was looked up with
  explicit operator bool() const { return matched_tokens > 0; }
  // Whether it says exactly what a get brings: the counts of its links, `plan` and `bytes`.
  bool counted() const { return !links.empty() && !links.front().counts.empty(); }
};

// A match as bytes, for another client of the same tenant: another process, another host. `tokens`:
// those that matched, to go with it; none is fine.
std::vector<std::byte> to_bytes(const LookupMatch& match, std::span<const TokenId> tokens = {});
// `tokens`, where given, gets those that came with it. The bytes may be from anywhere: what is no
// match that could be read is kInvalidArgument, naming the field; kVersionMismatch where a newer
// build wrote it.
Result<LookupMatch> match_from_bytes(Bytes bytes, std::vector<TokenId>* tokens = nullptr);

}  // namespace precis
