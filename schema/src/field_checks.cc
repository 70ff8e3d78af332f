#include "field_checks.h"

#include <span>
#include <string>
#include <string_view>

#include "precis/limits.h"
#include "wire_fields.h"

namespace precis::wire {
namespace {

Status check_dtype_is_set(precis::Dtype dtype) {
  return static_cast<int>(dtype) == 0 ? field_error("dtype", "is unset") : Status();
}

// Tokens [begin, end) of a path.
Status check_tokens(std::uint32_t begin, std::uint32_t end) {
  PRECIS_TRY(check_max("end", end, limits::kPathTokensMax));
  if (begin <= end) return {};
  return field_error("end", "is [" + std::to_string(begin) + ", " + std::to_string(end) + ")");
}

// Checks counts of tokens of a path.
Status check_each(std::string_view field, std::span<const std::uint32_t> counts) {
  for (const std::uint32_t count : counts) {
    PRECIS_TRY(check_max(field, count, limits::kPathTokensMax));
  }
  return {};
}

template <typename Links>
Status check_counts_of_all(const Links& links) {
  std::uint64_t sum = 0;
  for (const auto& link : links) sum += link.counts.size();
  return check_max("counts of all links", sum, limits::kMatchCountsMax);
}

Status check_prefill(double seconds) {
  if (seconds >= 0 && seconds <= limits::kPrefillSecondsMax) return {};  // false for a NaN
  return field_error("prefill_seconds",
                     "is " + std::to_string(seconds) + ", must be in [0, " +
                         std::to_string(static_cast<std::uint64_t>(limits::kPrefillSecondsMax)) +
                         "]; leave it out if it is unknown");
}

Status wrong_size(std::string_view field, std::size_t size, const std::string& of) {
  return field_error(field, "has " + std::to_string(size) + " elements for " + of);
}

}  // namespace

Status check(const precis::ModelSpec& model) { return model.validate(); }

Status check(const precis::Plan& plan) {
  if (plan.counts.size() == std::size_t{plan.num_layers} * plan.num_kv_heads) return {};
  return wrong_size("counts", plan.counts.size(),
                    std::to_string(plan.num_layers) + " layers of " +
                        std::to_string(plan.num_kv_heads) + " heads");
}

Status check(const precis::RemoteRegion& region) {
  // Otherwise address + size_bytes could overflow, and the range would look small.
  return check_max("size_bytes", region.size_bytes, ~std::uint64_t{0} - region.address);
}

Status check(const msg::PushProjection& push) {
  PRECIS_TRY(check_dtype_is_set(push.dtype));
  if (push.dtype != precis::Dtype::kF8E4M3) return {};
  return field_error("dtype", "is f8_e4m3; weights must be bf16, f16 or f32");
}

Status check(const msg::BeginPut& put) { return check_prefill(put.prefill_seconds); }

Status check(const msg::CommitPut& commit) { return check_prefill(commit.prefill_seconds); }

Status check(const msg::SetRetention& change) {
  if (change.priority || change.ttl_seconds) return {};
  return Status::invalid("there is nothing to set: give a priority, a ttl or both");
}

Status check(const msg::PushLayer& piece) {
  PRECIS_TRY(check_dtype_is_set(piece.dtype));
  PRECIS_TRY(check_max("head_count", piece.head_count, limits::kKvHeadsMax - piece.head_begin));
  PRECIS_TRY(
      check_max("token_count", piece.token_count, limits::kPathTokensMax - piece.token_begin));
  if (piece.head_count <= 1) return {};  // The stride of a single head has no meaning.
  PRECIS_TRY(check_max("keys_head_stride", piece.keys_head_stride, piece.keys.size_bytes));
  return check_max("values_head_stride", piece.values_head_stride, piece.values.size_bytes);
}

Status check(const msg::GetLink& link) { return check_each("counts", link.counts); }

Status check(const msg::Get& get) {
  PRECIS_TRY(check_counts_of_all(get.links));
  return check_max("head_count", get.head_count, limits::kKvHeadsMax - get.head_begin);
}

Status check(const msg::LayerServed& served) {
  PRECIS_TRY(check_each("counts", served.counts));
  if (served.counts.size() == served.tail_checksums.size()) return {};
  return wrong_size("tail_checksums", served.tail_checksums.size(),
                    std::to_string(served.counts.size()) + " counts");
}

Status check(const msg::PutBegun& begun) { return check_tokens(begun.begin, begun.end); }

Status check(const msg::SegmentInfo& segment) {
  PRECIS_TRY(check_tokens(segment.begin, segment.end));
  return check_prefill(segment.prefill_seconds);
}

Status check(const msg::MatchLink& link) {
  PRECIS_TRY(check_max("matched_end", link.matched_end, link.segment.end));
  return check_each("counts", link.counts);
}

Status check(const msg::Match& match) { return check_counts_of_all(match.links); }

Status check(const msg::PassedMatch& passed) {
  if (passed.shard) PRECIS_TRY(check_max("shard", *passed.shard, limits::kShards - 1));
  const std::uint32_t matched = passed.match.matched_tokens;
  if (passed.tokens.empty() || passed.tokens.size() == matched) return {};
  return field_error("tokens", "has " + std::to_string(passed.tokens.size()) + " elements, of " +
                                   std::to_string(matched) + " that matched");
}

Status check(const msg::ClusterState& state) {
  if (!state.owners.empty() && state.owners.size() != limits::kShards) {
    return wrong_size("owners", state.owners.size(), std::to_string(limits::kShards) + " shards");
  }
  for (const std::uint32_t owner : state.owners) {
    if (owner == ~std::uint32_t{0}) continue;
    PRECIS_TRY(check_max("owner", owner + std::uint64_t{1}, state.nodes.size()));
  }
  return {};
}

Status check(const precis::SegmentRow& row) {
  PRECIS_TRY(check_tokens(row.begin, row.end));
  PRECIS_TRY(check_prefill(row.prefill_seconds));
  if (row.layer_bytes.size() == row.plan.num_layers) return {};
  return wrong_size("layer_bytes", row.layer_bytes.size(),
                    std::to_string(row.plan.num_layers) + " layers");
}

Status check(const precis::StoredTenant& row) {
  if (row.name.empty()) return field_error("name", "is empty");
  PRECIS_TRY(parse_role(row.role).status());
  PRECIS_TRY(check_range("weight", row.weight, 1, limits::kTenantWeightMax));
  if (row.tokens.empty()) return field_error("tokens", "is empty");
  for (const StoredToken& token : row.tokens) {
    if (token.text.empty()) return field_error("tokens", "has an empty one");
  }
  return {};
}

}  // namespace precis::wire
