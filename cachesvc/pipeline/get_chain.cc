#include "cachesvc/pipeline/get_chain.h"

#include <span>
#include <string>
#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/pipeline/cut.h"
#include "precis/entry_form.h"
#include "precis/limits.h"
#include "precis/served_layout.h"

namespace precis {
namespace {

// The loop itself checks up to this many counts: that takes no longer than waking a thread.
constexpr std::size_t kInlineCountsMax = 16u << 10;

// `asked`: what the segment no longer stores.
Status trimmed(const SegmentRow& row, const std::string& asked) {
  return Status::not_found("segment " + row.id.hex() + " was trimmed to " +
                           counted(row.plan.total(), "entry", "entries") +
                           " since the lookup, and the get asks for " + asked +
                           "; look the path up again");
}

// Returns whether a segment stores these counts of first entries, for its heads from `head_begin`
// on.
bool stores(const SegmentRow& row, std::span<const std::uint32_t> counts,
            std::uint32_t head_begin) {
  const std::size_t num_heads = counts.size() / row.plan.num_layers;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto layer = static_cast<std::uint32_t>(i / num_heads);
    const auto head = static_cast<std::uint32_t>(head_begin + i % num_heads);
    if (counts[i] > row.plan.at(layer, head)) return false;
  }
  return true;
}

SegmentLeases::Version matched(const msg::GetLink& link) {
  return {link.segment, link.created_unix_ms, link.stored_entries};
}

Status take_heads(const msg::Get& request, GetChain& chain) {
  const std::uint32_t begin = request.head_begin, count = request.head_count;
  if (begin >= chain.model.num_kv_heads || count > chain.model.num_kv_heads - begin) {
    return Status::invalid("the get names heads [" + std::to_string(begin) + ", " +
                           std::to_string(std::uint64_t{begin} + count) + "), the model has " +
                           counted(chain.model.num_kv_heads, "KV head"));
  }
  chain.head_begin = begin;
  chain.num_heads = count > 0 ? count : chain.model.num_kv_heads - begin;
  return {};
}

// Returns the size that the destination needs.
Result<std::size_t> destination_bytes(const GetChain& chain, const msg::Get& request) {
  const ModelSpec& model = chain.model;
  const std::vector<EntryForm> rows = entry_forms(chain.links, model);
  std::vector<std::uint64_t> entries;
  for (std::size_t link = 0; link < chain.links.size(); ++link) {
    const SegmentRow& row = *chain.links[link];
    if (!chain.entries.empty()) {
      entries.push_back(entries_of_heads(chain.entries[link], row.end - row.begin, model.num_layers,
                                         chain.num_heads));
    } else if (!chain.is_held_by(row, link, request)) {
      return trimmed(row, "more entries of a head");
    }
  }
  if (chain.entries.empty()) {
    return served_counts_bytes(request.links, model.num_layers, chain.num_heads, rows);
  }
  return served_capacity_bytes(entries, rows, model.num_layers, chain.num_heads);
}

}  // namespace

bool GetChain::is_held_by(const SegmentRow& row, std::size_t link, const msg::Get& request) const {
  return entries.empty() ? stores(row, request.links[link].counts, head_begin)
                         : entries[link] <= row.plan.total();
}

std::vector<std::uint32_t> GetChain::counts(const msg::Get& request, std::uint32_t layer) const {
  std::vector<std::uint32_t> counts;
  if (!entries.empty()) return counts;
  for (const msg::GetLink& link : request.links) {
    const auto begin = link.counts.begin() + static_cast<std::ptrdiff_t>(layer) * num_heads;
    counts.insert(counts.end(), begin, begin + num_heads);
  }
  return counts;
}

Task<Result<GetChain>> GetResolver::resolve(const Tenant& tenant, const msg::Get& request,
                                            Owner owner) const {
  PRECIS_CO_ASSIGN(GetChain chain, find(tenant, request));
  const auto size = [&] { return destination_bytes(chain, request); };
  auto needed = Result<std::size_t>(std::size_t{0});
  const std::size_t counts = request.links.size() * request.links.front().counts.size();
  if (counts <= kInlineCountsMax) {
    needed = size();
  } else {
    needed = co_await run_on(reads_, loop_, std::move(owner), size);
  }
  PRECIS_CO_TRY(needed.status());
  if (request.destination.size_bytes < *needed) {
    co_return Status::invalid("the destination has " +
                              std::to_string(request.destination.size_bytes) +
                              " B, the get needs " + std::to_string(*needed) + " B");
  }
  co_return chain;
}

// Returns the stored row. If the row that the lookup found is not stored any more but a lease keeps
// it, returns that row and sets `leased`.
Result<Catalog::Row> GetResolver::find(const Tenant& tenant, const msg::GetLink& link,
                                       bool& leased) const {
  auto present = catalog_.served_segment(tenant.name, link.segment);
  // The owner may have a newer version that is not in the shared storage yet, or lease the older
  // one.
  const bool is_it = present.ok() && SegmentLeases::Version::of(**present) == matched(link);
  if (!is_it && present.ok() && catalog_.is_guest(**present)) {
    return Status::not_found("segment " + link.segment.hex() + " is there in another version");
  }
  const auto held = catalog_.leases().find(tenant.name, matched(link));
  if (!held || is_it) {
    return present;
  }
  leased = true;
  return held->row;
}

Result<GetChain> GetResolver::find(const Tenant& tenant, const msg::Get& request) const {
  if (request.links.empty() || request.links.size() > limits::kChainSegmentsMax) {
    return Status::invalid("the get names " + std::to_string(request.links.size()) +
                           " segments, must name 1 to " +
                           std::to_string(limits::kChainSegmentsMax));
  }
  GetChain chain;
  bool leased = false;
  const bool counted = !request.links.front().counts.empty();
  if (counted && request.budget.kind != Budget::Kind::kAll) {
    return Status::invalid("a get with counts has a budget of " + request.budget.to_string() +
                           "; leave the budget out");
  }
  for (const msg::GetLink& link : request.links) {
    PRECIS_ASSIGN(const Catalog::Row row, find(tenant, link, leased));
    const SegmentId below = chain.links.empty() ? SegmentId{} : chain.links.back()->id;
    if (row->parent != below && link.created_unix_ms != 0) {  // it was a child when it was found
      return Status::not_found("segment " + row->id.hex() +
                               " was split or put again since the lookup; look the path up again");
    }
    if (row->parent != below) {
      return Status::invalid(
          "segment " + row->id.hex() +
          " is not a child of the segment named before it; name the whole chain, from the root");
    }
    if (chain.links.empty() || row->model != chain.links.back()->model) {
      PRECIS_ASSIGN(chain.model, catalog_.model(tenant.name, row->model));
      PRECIS_TRY(take_heads(request, chain));
    }
    const std::size_t all = std::size_t{chain.model.num_layers} * chain.num_heads;
    if (link.counts.size() != (counted ? all : 0)) {
      return Status::invalid("segment " + row->id.hex() + " has " +
                             std::to_string(link.counts.size()) + " counts, must be " +
                             std::to_string(counted ? all : 0) +
                             ", one for each layer and head that the get names");
    }
    chain.links.push_back(row);
    if (counted) continue;
    if (link.entries > row->plan.total()) {
      return trimmed(*row, std::to_string(link.entries));
    }
    PRECIS_ASSIGN(std::uint64_t cut, cut_entries(*row, chain.model, request.budget));
    if (request.budget.kind == Budget::Kind::kAll && link.entries > 0) cut = link.entries;
    chain.entries.push_back(cut);
  }
  // If a lease keeps any of the rows, all rows must be those that the lookup found.
  for (std::size_t link = 0; leased && link < chain.links.size(); ++link) {
    if (SegmentLeases::Version::of(*chain.links[link]) == matched(request.links[link])) continue;
    return Status::not_found("segment " + chain.links[link]->id.hex() +
                             " was replaced since the lookup; look the path up again");
  }
  return chain;
}

}  // namespace precis
