#include "cachesvc/pipeline/get_path.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "cachesvc/base/counted.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kLayersInFlight = 4;
constexpr std::uint32_t kLayersAhead = 2;  // enough to keep the disk busy while one is checked

// Records up to here are cut by the loop itself: that takes no longer than a thread takes to wake.
constexpr std::size_t kInlineCutBytesMax = 256u << 10;

}  // namespace

struct GetPath::Prefix {
  ModelSpec model;
  std::vector<Catalog::Row> links;
  std::vector<std::uint64_t> entries;  // the cut of each link
};

Task<Result<msg::GetDone>> GetPath::run(std::shared_ptr<Get> get, const Tenant& tenant,
                                        msg::Get request, Connection& to,
                                        std::function<Status(msg::LayerServed)> served) {
  PRECIS_CO_ASSIGN(Prefix prefix, resolve(tenant, request));
  const GaugeHold open(parts_.metrics.gets_open, 1);
  const Owner owner = tenant.owner(&to);
  const std::uint64_t began_ns = parts_.clock.monotonic_ns();
  std::uint64_t offset = 0;
  InFlight pushes(kLayersInFlight);
  std::deque<Started<Result<Leases>>> begun;  // this layer, then those that are read ahead
  std::optional<std::uint32_t> doubted;       // a layer that is taken from the disk once more

  for (std::uint32_t layer = 0; layer < prefix.model.num_layers;) {
    co_await pushes.enter();
    Status stop = co_await begin(prefix, layer, owner, begun);
    if (!stop.ok()) {
      pushes.leave(stop);
      break;
    }
    auto leases = co_await begun.front();
    begun.pop_front();
    if (!leases.ok()) {
      pushes.leave(leases.status());
      break;
    }
    // The first one's reader can begin with it, so where it takes a while it travels alone.
    if (layer == 1 && offset > kInlineCutBytesMax) co_await pushes.alone();
    auto cut = co_await cut_records(prefix, *leases, layer, owner);
    if (cut.status().code() == StatusCode::kCorruption && doubted != layer) {
      doubted = layer;
      leases->clear();
      for (auto& ahead : begun) (void)co_await ahead;
      begun.clear();  // who waits for memory holds none
      parts_.cold.forget(prefix.links, layer, cut.status());
      pushes.leave({});
      continue;
    }
    stop = cut.status();
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
  for (auto& unused : begun) (void)co_await unused;
  parts_.memory.retry();  // leases of layers that were not pushed have ended, too
  PRECIS_CO_TRY(pushed);

  for (const Catalog::Row& row : prefix.links) parts_.catalog.count_hit(row->id);
  parts_.rate.served(offset, static_cast<double>(parts_.clock.monotonic_ns() - began_ns) * 1e-9);
  parts_.metrics.pushed_bytes += static_cast<std::int64_t>(offset);
  co_return msg::GetDone{offset};
}

Result<GetPath::Prefix> GetPath::resolve(const Tenant& tenant, const msg::Get& request) const {
  if (request.links.empty() || request.links.size() > limits::kChainSegmentsMax) {
    return Status::invalid("a get names " + std::to_string(request.links.size()) +
                           " segments, must be 1 to " + std::to_string(limits::kChainSegmentsMax));
  }
  Prefix prefix;
  std::uint64_t entries = 0;
  for (const msg::GetLink& link : request.links) {
    PRECIS_ASSIGN(const Catalog::Row row, parts_.catalog.segment(tenant.name, link.segment));
    const SegmentId below = prefix.links.empty() ? SegmentId{} : prefix.links.back()->id;
    if (row->parent != below) {
      return Status::invalid("segment " + row->id.hex() +
                             " does not stand on the one named before it; name the whole chain");
    }
    if (prefix.links.empty() || row->model != prefix.links.back()->model) {
      PRECIS_ASSIGN(prefix.model, parts_.catalog.model(tenant.name, row->model));
    }
    if (const std::uint64_t stored = row->plan.total(); link.entries > stored) {
      return Status::not_found("segment " + row->id.hex() + " was trimmed to " +
                               counted(stored, "entry", "entries") +
                               " since it was looked up, and " + std::to_string(link.entries) +
                               " are asked for; look it up again");
    }
    PRECIS_ASSIGN(std::uint64_t cut, cut_entries(*row, prefix.model, request.budget));
    if (request.budget.kind == Budget::Kind::kAll && link.entries > 0) cut = link.entries;
    entries += cut;
    prefix.links.push_back(row);
    prefix.entries.push_back(cut);
  }
  const std::size_t capacity =
      served_capacity_bytes(entries, prefix.model.num_layers, prefix.model.num_kv_heads,
                            prefix.model.head_dim, prefix.model.dtype);
  if (request.destination.size_bytes < capacity) {
    return Status::invalid("the destination has " + std::to_string(request.destination.size_bytes) +
                           " B, " + counted(entries, "entry needs", "entries need") + " " +
                           std::to_string(capacity) + " B");
  }
  return prefix;
}

// Who waits for memory holds none, but of earlier layers, which go as they are sent: so gets never
// wait for each other for ever. What is read ahead takes what nobody uses, in the order of layers.
Task<Status> GetPath::begin(Prefix& prefix, std::uint32_t layer, const Owner& owner,
                            std::deque<Started<Result<Leases>>>& begun) {
  for (auto next = static_cast<std::uint32_t>(layer + begun.size());
       next < prefix.model.num_layers && next <= layer + kLayersAhead; ++next) {
    const auto room_of = [&](auto&& is_wanted) {
      std::vector<Memory::Want> wants;
      for (std::size_t link = 0; link < prefix.links.size(); ++link) {
        if (is_wanted(link)) wants.push_back({prefix.links[link]->layer_bytes[next]});
      }
      return wants;
    };
    Leases leases;
    Result<Memory::Pieces> room = Memory::Pieces{};
    if (next > layer) {
      room = parts_.memory.try_free(room_of([&](std::size_t link) {
        const Catalog::Row& row = prefix.links[link];
        return !parts_.hot_tier.contains(row->id, next, row);
      }));
      if (!room.ok()) break;
      leases = find_hot(prefix, next);
    } else {
      leases = find_hot(prefix, next);
      room = parts_.memory.try_acquire(room_of([&](std::size_t link) { return !leases[link]; }));
      if (!room.ok()) {
        leases.clear();
        room = co_await parts_.memory.acquire(room_of([](std::size_t) { return true; }), owner);
        PRECIS_CO_TRY(room.status());
        leases = find_hot(prefix, next);  // others read, too
        for (std::size_t link = leases.size(); link-- > 0;) {
          if (leases[link]) room->erase(room->begin() + static_cast<std::ptrdiff_t>(link));
        }
      }
    }
    begun.emplace_back(lease(prefix, next, std::move(leases), std::move(room).value(), owner));
  }
  co_return Status();
}

GetPath::Leases GetPath::find_hot(const Prefix& prefix, std::uint32_t layer) const {
  Leases leases;
  for (const Catalog::Row& row : prefix.links) {
    leases.push_back(parts_.hot_tier.find(row->id, layer, row));
  }
  return leases;
}

Task<Result<GetPath::Leases>> GetPath::lease(Prefix& prefix, std::uint32_t layer, Leases leases,
                                             Memory::Pieces room, Owner owner) {
  parts_.metrics.layers_hot += static_cast<std::int64_t>(leases.size() - room.size());
  auto piece = room.begin();
  for (std::size_t link = 0; link < leases.size();) {
    if (leases[link]) {
      ++link;
      continue;
    }
    const Catalog::Row row = prefix.links[link];
    (*piece)->shrink(row->layer_bytes[layer]);  // where it was trimmed meanwhile
    const Status status = co_await parts_.cold.read_into(row, layer, (*piece)->bytes(), owner);
    if (status.ok()) {
      leases[link] = parts_.hot_tier.insert(row->id, layer, row, std::move(*piece++));
    } else if (prefix.links[link] == row && !follow(prefix, link)) {
      co_return status;
    }
  }
  co_return leases;
}

Task<Result<LayerCut>> GetPath::cut_records(const Prefix& prefix, const Leases& leases,
                                            std::uint32_t layer, const Owner& owner) {
  std::vector<Bytes> records;
  std::size_t size_bytes = 0;
  for (const HotTier::Lease& lease : leases) {
    records.push_back(lease->bytes());
    size_bytes += records.back().size();
  }
  const auto cut = [&] {
    return cut_layer(records, prefix.entries, layer, prefix.model.num_kv_heads,
                     prefix.model.head_dim, prefix.model.dtype, parts_.zeros);
  };
  if (size_bytes <= kInlineCutBytesMax) co_return cut();
  co_return co_await run_on(parts_.reads, parts_.loop, owner, cut);
}

// Where a link was trimmed meanwhile, what is left holds the cut still, or it does not.
bool GetPath::follow(Prefix& prefix, std::size_t link) const {
  Catalog::Row& row = prefix.links[link];
  auto present = parts_.catalog.segment(row->tenant, row->id);
  if (!present.ok() || *present == row || !(*present)->same_put(*row)) return false;
  if ((*present)->plan.total() < prefix.entries[link]) return false;
  // Nor does it fit where there is room for what it was, if it has grown.
  if (!std::ranges::equal((*present)->layer_bytes, row->layer_bytes, std::ranges::less_equal())) {
    return false;
  }
  row = std::move(present).value();
  return true;
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
