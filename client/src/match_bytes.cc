// Encodes a match: the Match reply of the service and its model.
#include <string>
#include <utility>

#include "client/src/get_plan.h"
#include "precis/block_digest.h"
#include "precis/match.h"

namespace precis {
namespace {

// An empty match has no links. Any other match must be one that get() accepts.
Status check_match(const LookupMatch& match) {
  if (match.model.fingerprint != model_fingerprint(match.model.spec)) {
    return Status::invalid("match: fingerprint " + match.model.fingerprint.hex() +
                           " is not that of its model, " +
                           model_fingerprint(match.model.spec).hex());
  }
  PRECIS_TRY(check_plan(match));
  if (match.links.empty() && match.matched_tokens == 0) return {};
  if (!match.links.empty() && match.links.back().matched_end != match.matched_tokens) {
    return Status::invalid("match: " + std::to_string(match.matched_tokens) +
                           " tokens, its last segment is matched up to token " +
                           std::to_string(match.links.back().matched_end));
  }
  return plan_get(match, Budget::all()).status();
}

}  // namespace

std::vector<std::byte> to_bytes(const LookupMatch& match, std::span<const TokenId> tokens) {
  return encode(msg::PassedMatch{.match = match,
                                 .model = match.model.spec,
                                 .fingerprint = match.model.fingerprint,
                                 .adapter = match.model.adapter,
                                 .keep = match.options.keep,
                                 .align = match.options.align,
                                 .tokens = {tokens.begin(), tokens.end()},
                                 .shard = match.shard});
}

Result<LookupMatch> match_from_bytes(Bytes bytes, std::vector<TokenId>* tokens) {
  PRECIS_ASSIGN(msg::PassedMatch passed, decode_passed_match(bytes));
  LookupMatch match;
  static_cast<msg::Match&>(match) = std::move(passed.match);
  match.model = {std::move(passed.model), passed.fingerprint, std::move(passed.adapter)};
  match.options = {passed.keep, passed.align};
  match.shard = passed.shard;
  PRECIS_TRY(check_match(match));
  if (tokens != nullptr) *tokens = std::move(passed.tokens);
  return match;
}

}  // namespace precis
