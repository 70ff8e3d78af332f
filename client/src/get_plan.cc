#include "client/src/get_plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "precis/limits.h"
#include "precis/reader_budget.h"
#include "precis/recipe.h"
#include "precis/served_layout.h"

namespace precis {
namespace {

// Checks every number that sizes are computed from against its limit, so that no product below can
// overflow.
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
                           ", must be inside it; only the last segment may be matched in part");
  }
  if (!whole && model.hides_tokens(segment.end - begin)) {
    return Status::invalid(name + " is matched up to token " + std::to_string(link.matched_end) +
                           ": the model has sliding windows, and the segment has only the window "
                           "of its end; match it whole");
  }
  const std::uint64_t all =
      std::uint64_t{segment.end - begin} * model.num_layers * model.num_kv_heads;
  const std::uint64_t least = segment.whole_entries == 0 ? 1 : 0;  // a part may have none
  if (segment.entries < least || segment.entries > all) {
    return Status::invalid(name + " stores " + std::to_string(segment.entries) +
                           " entries, must be in [" + std::to_string(least) + ", " +
                           std::to_string(all) + "]");
  }
  return {};
}

Result<std::uint64_t> entries_at(const ModelSpec& model, const msg::SegmentInfo& segment,
                                 const Budget& keep) {
  if (keep.kind == Budget::Kind::kAll) return segment.entries;
  PRECIS_ASSIGN(const Recipe* const recipe, stored_recipe(segment.recipe));
  PRECIS_ASSIGN(const std::uint64_t entries,
                asked_entries(segment, segment.entries, *recipe, model, keep));
  if (entries <= segment.entries) return entries;
  return Status::invalid("keep " + keep.to_string() + " asks for " + std::to_string(entries) +
                         " entries, it stores " + std::to_string(segment.entries) + " (keep " +
                         stored_budget(segment).to_string() +
                         "): ask for at most that, or for all of it");
}

// Either all links have counts, or none.
Status check_counts(const LookupMatch& match, const msg::MatchLink& link) {
  const ModelSpec& model = match.model.spec;
  const msg::SegmentInfo& segment = link.segment;
  const std::size_t size = match.counted() ? std::size_t{model.num_layers} * model.num_kv_heads : 0;
  const std::string name = "match: segment " + segment.id.hex();
  if (link.counts.size() != size) {
    return Status::invalid(name + " has " + std::to_string(link.counts.size()) +
                           " counts, must be " + std::to_string(size));
  }
  std::uint64_t sum = 0;
  for (const std::uint32_t count : link.counts) {
    if (count > segment.end - segment.begin) {
      return Status::invalid(name + " has a count of " + std::to_string(count) + " for " +
                             std::to_string(segment.end - segment.begin) + " tokens");
    }
    sum += count;
  }
  if (sum <= segment.entries) return {};
  return Status::invalid(name + " has counts of " + std::to_string(sum) + " entries, it stores " +
                         std::to_string(segment.entries));
}

Status check_counted(const LookupMatch& match, const Budget& keep) {
  if (!match.counted()) return {};
  const std::uint64_t counts =
      std::uint64_t{match.links.size()} * match.links.front().counts.size();
  if (counts > limits::kMatchCountsMax) {
    return Status::invalid("match: " + std::to_string(counts) + " counts, the limit is " +
                           std::to_string(limits::kMatchCountsMax));
  }
  if (keep.kind == Budget::Kind::kAll) return {};
  const LookupOptions& made = match.options;
  return Status::invalid("the match was made at keep " +
                         made.keep.value_or(Budget::all()).to_string() + " and align " +
                         std::to_string(made.align) + ": get it without a budget");
}

Status take_heads(const GetOptions& options, GetPlan& plan) {
  const std::uint32_t all = plan.model.num_kv_heads, begin = options.head_begin;
  if (begin >= all || options.head_count > all - begin) {
    return Status::invalid("heads: [" + std::to_string(begin) + ", " +
                           std::to_string(std::uint64_t{begin} + options.head_count) +
                           "), the model has " + std::to_string(all));
  }
  plan.head_begin = begin;
  plan.num_heads = options.head_count > 0 ? options.head_count : all - begin;
  return {};
}

// Enough bytes for the decoded rows of all heads, each aligned.
std::size_t decoded_capacity_bytes(const GetPlan& plan, std::uint64_t entries) {
  const std::size_t heads = std::size_t{plan.model.num_layers} * plan.num_heads;
  return entries * EntryForm::of(plan.model).bytes() + 2 * heads * kSectionAlign;
}

// The counts of the heads asked for, [num_layers, num_heads].
std::vector<std::uint32_t> counts_of_heads(const GetPlan& plan,
                                           const std::vector<std::uint32_t>& counts) {
  std::vector<std::uint32_t> taken;
  if (counts.empty()) return taken;
  for (std::uint32_t l = 0; l < plan.model.num_layers; ++l) {
    const auto begin =
        counts.begin() +
        static_cast<std::ptrdiff_t>(std::size_t{l} * plan.model.num_kv_heads + plan.head_begin);
    taken.insert(taken.end(), begin, begin + plan.num_heads);
  }
  return taken;
}

}  // namespace

Status check_plan(const LookupMatch& match) {
  const ModelSpec& model = match.model.spec;
  const std::size_t size = std::size_t{model.num_layers} * model.num_kv_heads;
  if (match.plan.num_layers != model.num_layers || match.plan.num_kv_heads != model.num_kv_heads ||
      match.plan.counts.size() != size) {
    return Status::invalid("match: plan of " + std::to_string(match.plan.num_layers) +
                           " layers and " + std::to_string(match.plan.num_kv_heads) +
                           " KV heads, the model has " + std::to_string(model.num_layers) +
                           " and " + std::to_string(model.num_kv_heads));
  }
  if (!match.counted()) return {};
  const bool whole = match.links.back().matched_end == match.links.back().segment.end;
  for (std::size_t i = 0; i < size; ++i) {
    std::uint64_t sum = 0;
    for (const msg::MatchLink& link : match.links) {
      if (link.counts.size() != size) return check_counts(match, link);
      sum += link.counts[i];
    }
    if (match.plan.counts[i] == sum || (!whole && match.plan.counts[i] < sum)) continue;
    return Status::invalid("match: plan of " + std::to_string(match.plan.counts[i]) +
                           " entries of layer " + std::to_string(i / model.num_kv_heads) +
                           ", head " + std::to_string(i % model.num_kv_heads) + ", counts of " +
                           std::to_string(sum));
  }
  return {};
}

Result<GetPlan> plan_get(const LookupMatch& match, const Budget& keep, const GetOptions& options) {
  if (match.links.empty() || match.matched_tokens == 0) {
    return Status::invalid("get: the match is empty: no prefix of this path is stored");
  }
  if (match.links.size() > limits::kChainSegmentsMax) {
    return Status::invalid("match: " + std::to_string(match.links.size()) +
                           " segments, the limit is " + std::to_string(limits::kChainSegmentsMax));
  }
  const ModelSpec& model = match.model.spec;
  PRECIS_TRY(model.validate());
  PRECIS_TRY(check_counted(match, keep));
  GetPlan plan;
  plan.model = model;
  plan.budget = keep;
  plan.traceparent = sent_traceparent(options.traceparent);
  PRECIS_TRY(take_heads(options, plan));
  std::uint32_t begin = 0;
  std::vector<std::uint64_t> served;  // [num_links], at most
  for (const msg::MatchLink& link : match.links) {
    const msg::SegmentInfo& segment = link.segment;
    PRECIS_TRY(check_link(model, link, begin, &link == &match.links.back()));
    PRECIS_TRY(check_counts(match, link));
    auto entries = entries_at(model, segment, keep);
    if (!entries.ok()) return entries.status().with_context("segment " + segment.id.hex());
    GetPlan::Link& planned = plan.links.emplace_back();
    planned = {segment.id, segment.begin, segment.end, link.matched_end, *entries};
    planned.counts = counts_of_heads(plan, link.counts);
    planned.served_max =
        match.counted()
            ? std::accumulate(planned.counts.begin(), planned.counts.end(), std::uint64_t{0})
            : entries_of_heads(*entries, segment.end - begin, model.num_layers, plan.num_heads);
    planned.created_unix_ms = segment.created_unix_ms;
    planned.stored_entries = segment.entries;
    served.push_back(planned.served_max);
    plan.forms.push_back(EntryForm::of(model, segment.encoding));
    PRECIS_TRY(plan.forms.back().validate());
    begin = segment.end;
  }
  plan.capacity_bytes =
      match.counted()
          ? served_counts_bytes(plan.links, model.num_layers, plan.num_heads, plan.forms)
          : served_capacity_bytes(served, plan.forms, model.num_layers, plan.num_heads);
  const auto is_coded = [](const EntryForm& form) { return form.encoding != Encoding::kRaw; };
  if (std::ranges::any_of(plan.forms, is_coded)) {
    const std::uint64_t total = std::accumulate(served.begin(), served.end(), std::uint64_t{0});
    plan.decoded_bytes = decoded_capacity_bytes(plan, total);
  }
  // All counts may be 0, but a get needs some memory.
  plan.capacity_bytes = std::max(plan.capacity_bytes, kSectionAlign);
  return plan;
}

std::string sent_traceparent(const std::string& given) {
  return given.substr(0, limits::kTraceparentBytesMax);
}

msg::Get get_request(const GetPlan& plan, RemoteRegion destination) {
  msg::Get request;
  request.traceparent = plan.traceparent;
  for (const GetPlan::Link& link : plan.links) {
    const std::uint64_t entries = plan.counted() ? 0 : link.entries;
    request.links.push_back({link.segment, link.matched_end, entries, link.counts,
                             link.created_unix_ms, link.stored_entries});
  }
  request.budget = plan.budget;
  request.destination = std::move(destination);
  if (plan.num_heads != plan.model.num_kv_heads) {
    request.head_begin = plan.head_begin;
    request.head_count = plan.num_heads;
  }
  return request;
}

}  // namespace precis
