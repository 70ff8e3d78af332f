#include "cachesvc/pipeline/get_path.h"

#include <functional>
#include <string>
#include <utility>

#include "cachesvc/base/counted.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kLayersInFlight = 4;
constexpr std::uint32_t kLayersAhead = 2;  // enough to keep the disk busy while one is checked

// Records up to here are cut by the loop itself: that takes no longer than a thread takes to wake.
constexpr std::size_t kInlineCutBytesMax = 256u << 10;
// So many counts are looked at by the loop itself.
constexpr std::size_t kInlineCountsMax = 16u << 10;

// `asked`: what it does not hold.
Status trimmed(const SegmentRow& row, const std::string& asked) {
  return Status::not_found("segment " + row.id.hex() + " was trimmed to " +
                           counted(row.plan.total(), "entry", "entries") +
                           " since it was looked up, and " + asked +
                           " asked for; look it up again");
}

// Whether a segment stores so many first entries of its heads from `head_begin` on.
bool holds(const SegmentRow& row, std::span<const std::uint32_t> counts, std::uint32_t head_begin) {
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

Status take_heads(const msg::Get& request, const ModelSpec& model, std::uint32_t& num_heads) {
  const std::uint32_t begin = request.head_begin, count = request.head_count;
  if (begin >= model.num_kv_heads || count > model.num_kv_heads - begin) {
    return Status::invalid("a get of heads [" + std::to_string(begin) + ", " +
                           std::to_string(std::uint64_t{begin} + count) + ") of a model of " +
                           counted(model.num_kv_heads, "KV head"));
  }
  num_heads = count > 0 ? count : model.num_kv_heads - begin;
  return {};
}

// [num_links, num_heads], of a request that has them.
std::vector<std::uint32_t> counts_of(const msg::Get& request, std::uint32_t layer,
                                     std::uint32_t num_heads) {
  std::vector<std::uint32_t> counts;
  for (const msg::GetLink& link : request.links) {
    const auto begin = link.counts.begin() + static_cast<std::ptrdiff_t>(layer) * num_heads;
    counts.insert(counts.end(), begin, begin + num_heads);
  }
  return counts;
}

}  // namespace

struct GetPath::Prefix {
  ModelSpec model;
  std::uint32_t head_begin = 0, num_heads = 0;
  std::vector<Catalog::Row> links;
  std::vector<std::uint64_t> entries;  // the cut of each link; none where the request has counts
};

Task<Result<msg::GetDone>> GetPath::run(std::shared_ptr<Get> get, const Tenant& tenant,
                                        msg::Get request, Connection& to,
                                        std::function<Status(msg::LayerServed)> served) {
  const Owner owner = tenant.owner(&to);
  PRECIS_CO_ASSIGN(const Prefix prefix, co_await resolve(tenant, request, owner));
  const GaugeHold open(parts_.metrics.gets_open, 1);
  const std::uint64_t began_ns = parts_.clock.monotonic_ns();
  std::uint64_t offset = 0;
  InFlight pushes(kLayersInFlight);
  ChainLayers layers(
      {parts_.cold, parts_.memory, parts_.catalog, parts_.hot_tier, parts_.metrics}, prefix.links,
      prefix.model.num_layers, owner, kLayersAhead, [&](std::size_t link, const SegmentRow& now) {
        return prefix.entries.empty() ? holds(now, request.links[link].counts, prefix.head_begin)
                                      : prefix.entries[link] <= now.plan.total();
      });

  for (std::uint32_t layer = 0; layer < prefix.model.num_layers;) {
    co_await pushes.enter();
    auto leases = co_await layers.lease(layer);
    if (!leases.ok()) {
      pushes.leave(leases.status());
      break;
    }
    // The first one's reader can begin with it, so where it takes a while it travels alone.
    if (layer == 1 && offset > kInlineCutBytesMax) co_await pushes.alone();
    auto cut = co_await cut_records(prefix, request, *leases, layer, owner);
    if (cut.status().code() == StatusCode::kCorruption) {
      const bool again = co_await layers.doubt(layer, *leases, cut.status());
      if (again) {
        pushes.leave({});
        continue;
      }
    }
    Status stop = cut.status();
    if (stop.ok() && get->canceled) stop = Status::canceled("the client stopped the get");
    if (stop.ok()) stop = pushes.first_error();
    if (!stop.ok()) {
      pushes.leave(stop);
      break;
    }
    msg::LayerServed message{get->id, layer, offset, cut->counts, cut->tail_checksums};
    offset += cut->size_bytes;
    spawn(push(request, std::move(leases).value(), std::move(cut).value(), std::move(message), to,
               pushes, served));
    ++layer;
  }
  const Status pushed = co_await pushes.drain();
  co_await layers.end();
  parts_.memory.retry();  // leases of layers that were not pushed have ended, too
  PRECIS_CO_TRY(pushed);

  for (const Catalog::Row& row : layers.links()) parts_.catalog.count_hit(row->id);
  parts_.rate.served(offset, static_cast<double>(parts_.clock.monotonic_ns() - began_ns) * 1e-9);
  parts_.metrics.pushed_bytes += static_cast<std::int64_t>(offset);
  co_return msg::GetDone{offset};
}

Task<Result<GetPath::Prefix>> GetPath::resolve(const Tenant& tenant, const msg::Get& request,
                                               Owner owner) const {
  PRECIS_CO_ASSIGN(Prefix prefix, find(tenant, request));
  const ModelSpec& model = prefix.model;
  const auto size = [&]() -> Result<std::size_t> {
    std::uint64_t entries = 0;
    for (std::size_t link = 0; link < prefix.links.size(); ++link) {
      const SegmentRow& row = *prefix.links[link];
      if (!prefix.entries.empty()) {
        entries += entries_of_heads(prefix.entries[link], row.end - row.begin, model.num_layers,
                                    prefix.num_heads);
      } else if (!holds(row, request.links[link].counts, prefix.head_begin)) {
        return trimmed(row, "more of a head are");
      }
    }
    if (prefix.entries.empty()) {
      return served_counts_bytes(request.links, model.num_layers, prefix.num_heads, model.head_dim,
                                 model.dtype);
    }
    return served_capacity_bytes(entries, model.num_layers, prefix.num_heads, model.head_dim,
                                 model.dtype);
  };
  auto needed = Result<std::size_t>(std::size_t{0});
  const std::size_t counts = request.links.size() * request.links.front().counts.size();
  if (counts <= kInlineCountsMax) {
    needed = size();
  } else {
    needed = co_await run_on(parts_.reads, parts_.loop, std::move(owner), size);
  }
  PRECIS_CO_TRY(needed.status());
  if (request.destination.size_bytes < *needed) {
    co_return Status::invalid("the destination has " +
                              std::to_string(request.destination.size_bytes) +
                              " B, what is asked for needs " + std::to_string(*needed) + " B");
  }
  co_return prefix;
}

Result<Catalog::Row> GetPath::find(const Tenant& tenant, const msg::GetLink& link,
                                   bool& leased) const {
  auto present = parts_.catalog.segment(tenant.name, link.segment);
  const auto held = parts_.catalog.leases().find(tenant.name, matched(link));
  if (!held || (present.ok() && SegmentLeases::Version::of(**present) == matched(link))) {
    return present;
  }
  leased = true;
  return held->row;
}

Result<GetPath::Prefix> GetPath::find(const Tenant& tenant, const msg::Get& request) const {
  if (request.links.empty() || request.links.size() > limits::kChainSegmentsMax) {
    return Status::invalid("a get names " + std::to_string(request.links.size()) +
                           " segments, must be 1 to " + std::to_string(limits::kChainSegmentsMax));
  }
  Prefix prefix;
  bool leased = false;
  const bool counted = !request.links.front().counts.empty();
  if (counted && request.budget.kind != Budget::Kind::kAll) {
    return Status::invalid("a get of counts has a budget of " + request.budget.to_string() +
                           "; what was counted is got without one");
  }
  for (const msg::GetLink& link : request.links) {
    PRECIS_ASSIGN(const Catalog::Row row, find(tenant, link, leased));
    const SegmentId below = prefix.links.empty() ? SegmentId{} : prefix.links.back()->id;
    if (row->parent != below) {
      return Status::invalid("segment " + row->id.hex() +
                             " does not stand on the one named before it; name the whole chain");
    }
    if (prefix.links.empty() || row->model != prefix.links.back()->model) {
      PRECIS_ASSIGN(prefix.model, parts_.catalog.model(tenant.name, row->model));
      PRECIS_TRY(take_heads(request, prefix.model, prefix.num_heads));
      prefix.head_begin = request.head_begin;
    }
    const std::size_t all = std::size_t{prefix.model.num_layers} * prefix.num_heads;
    if (link.counts.size() != (counted ? all : 0)) {
      return Status::invalid("segment " + row->id.hex() + " has " +
                             std::to_string(link.counts.size()) + " counts, must be " +
                             std::to_string(counted ? all : 0) +
                             ", one for each of its heads that are asked for");
    }
    prefix.links.push_back(row);
    if (counted) continue;
    if (link.entries > row->plan.total()) {
      return trimmed(*row, std::to_string(link.entries) + " are");
    }
    PRECIS_ASSIGN(std::uint64_t cut, cut_entries(*row, prefix.model, request.budget));
    if (request.budget.kind == Budget::Kind::kAll && link.entries > 0) cut = link.entries;
    prefix.entries.push_back(cut);
  }
  // What is brought was stored at one time.
  for (std::size_t link = 0; leased && link < prefix.links.size(); ++link) {
    if (SegmentLeases::Version::of(*prefix.links[link]) == matched(request.links[link])) continue;
    return Status::not_found("segment " + prefix.links[link]->id.hex() +
                             " was replaced since it was looked up; look it up again");
  }
  return prefix;
}

Task<Result<LayerCut>> GetPath::cut_records(const Prefix& prefix, const msg::Get& request,
                                            const Leases& leases, std::uint32_t layer,
                                            const Owner& owner) {
  std::vector<Bytes> records;
  std::size_t size_bytes = 0;
  for (const HotTier::Lease& lease : leases) {
    records.push_back(lease->bytes());
    size_bytes += records.back().size();
  }
  const auto cut = [&]() -> Result<LayerCut> {
    PRECIS_ASSIGN(const LayerRecords opened,
                  open_layer(records, {layer, prefix.head_begin, prefix.num_heads,
                                       prefix.model.head_dim, prefix.model.dtype}));
    auto counts = prefix.entries.empty() ? counts_of(request, layer, prefix.num_heads)
                                         : counts_at(opened, prefix.entries);
    return cut_layer(opened, std::move(counts), parts_.zeros);
  };
  if (size_bytes <= kInlineCutBytesMax) co_return cut();
  co_return co_await run_on(parts_.reads, parts_.loop, owner, cut);
}

// The leases live until the layer's bytes are in place: a lease ends exactly when its transfer
// does.
Task<void> GetPath::push(const msg::Get& request, Leases leases, LayerCut cut,
                         msg::LayerServed message, Connection& to, InFlight& in_flight,
                         std::function<Status(msg::LayerServed)>& served) {
  Status status = co_await completion<Status>([&](Completion done) {
    to.push(std::move(cut.ranges), parts_.registration, request.destination, message.offset,
            std::move(done));
  });
  leases.clear();
  parts_.memory.retry();
  if (status.ok()) status = served(std::move(message));
  in_flight.leave(status);
}

}  // namespace precis
