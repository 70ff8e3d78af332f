#include "client/src/get_plan.h"

#include <string>

#include "precis/limits.h"
#include "precis/recipe.h"
#include "precis/served_layout.h"

namespace precis {
namespace {

// Bounds every number that sizes are computed from, so that no product below can overflow.
Status check_link(const ModelSpec& model, const msg::MatchLink& link, std::uint32_t begin,
                  bool last) {
  const msg::SegmentInfo& segment = link.segment;
  const std::string name = "match: segment " + segment.id.hex();
  if (segment.begin != begin || segment.end <= begin || segment.end > limits::kPathTokensMax) {
    return Status::invalid(name + " holds tokens [" + std::to_string(segment.begin) + ", " +
                           std::to_string(segment.end) + "), must begin at " +
                           std::to_string(begin) + " and end after it, at most at " +
                           std::to_string(limits::kPathTokensMax));
  }
  const bool whole = link.matched_end == segment.end;
  if (link.matched_end <= begin || link.matched_end > segment.end || (!whole && !last)) {
    return Status::invalid(name + " is matched up to token " + std::to_string(link.matched_end) +
                           ", must be inside it, and its end but for the last segment");
  }
  const std::uint64_t all =
      std::uint64_t{segment.end - begin} * model.num_layers * model.num_kv_heads;
  if (segment.entries == 0 || segment.entries > all) {
    return Status::invalid(name + " stores " + std::to_string(segment.entries) +
                           " entries, must be in [1, " + std::to_string(all) + "]");
  }
  return {};
}

Result<std::uint64_t> entries_at(const ModelSpec& model, const msg::SegmentInfo& segment,
                                 const Budget& keep) {
  if (keep.kind == Budget::Kind::kAll) return segment.entries;
  if (keep.kind == Budget::Kind::kQuality) {
    return Status::invalid("a quality target is for puts; read at a ratio, entries or bytes");
  }
  PRECIS_ASSIGN(const Recipe recipe, parse_recipe(segment.recipe));
  PRECIS_ASSIGN(const std::uint64_t entries,
                budget_entries(recipe, model, segment.end - segment.begin, keep, segment.begin));
  if (entries <= segment.entries) return entries;
  return Status::invalid("keep " + keep.to_string() + " asks for " + std::to_string(entries) +
                         " entries, it stores " + std::to_string(segment.entries) + " (keep " +
                         segment.stored_budget().to_string() +
                         "): ask for at most that, or for all of it");
}

}  // namespace

Result<GetPlan> plan_get(const LookupMatch& match, const Budget& keep) {
  if (match.links.empty() || match.matched_tokens == 0) {
    return Status::invalid("get: the match is empty, nothing is stored of this path");
  }
  if (match.links.size() > limits::kChainSegmentsMax) {
    return Status::invalid("match: " + std::to_string(match.links.size()) +
                           " segments, the limit is " + std::to_string(limits::kChainSegmentsMax));
  }
  const ModelSpec& model = match.model.spec;
  PRECIS_TRY(model.validate());
  GetPlan plan{model, keep, {}, 0};
  std::uint32_t begin = 0;
  std::uint64_t total = 0;
  for (const msg::MatchLink& link : match.links) {
    const msg::SegmentInfo& segment = link.segment;
    PRECIS_TRY(check_link(model, link, begin, &link == &match.links.back()));
    auto entries = entries_at(model, segment, keep);
    if (!entries.ok()) return entries.status().with_context("segment " + segment.id.hex());
    plan.links.push_back({segment.id, segment.begin, segment.end, link.matched_end, *entries});
    total += *entries;
    begin = segment.end;
  }
  plan.capacity_bytes = served_capacity_bytes(total, model.num_layers, model.num_kv_heads,
                                              model.head_dim, model.dtype);
  return plan;
}

msg::Get get_request(const GetPlan& plan, RemoteRegion destination) {
  msg::Get request;
  for (const GetPlan::Link& link : plan.links) {
    request.links.push_back({link.segment, link.matched_end, link.entries});
  }
  request.budget = plan.budget;
  request.destination = std::move(destination);
  return request;
}

}  // namespace precis
