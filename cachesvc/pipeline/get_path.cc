#include "cachesvc/pipeline/get_path.h"

#include <functional>
#include <string>
#include <utility>

#include "cachesvc/base/counted.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::size_t kLayersInFlight = 4;
constexpr std::uint32_t kLayersAhead = 2;  // keeps the disk busy while one layer is checked

// The loop itself cuts records up to this size: that takes no longer than waking a thread.
constexpr std::size_t kInlineCutBytesMax = 256u << 10;

}  // namespace

Task<Result<msg::GetDone>> GetPath::run(std::shared_ptr<Get> get, const Tenant& tenant,
                                        msg::Get request, Connection& to,
                                        std::function<Status(msg::LayerServed)> served) {
  const Owner owner = tenant.owner(&to);
  PRECIS_CO_ASSIGN(const GetChain chain, co_await resolver_.resolve(tenant, request, owner));
  const GaugeHold open(parts_.metrics.gets_open, 1);
  get->model = chain.model.name;
  const std::uint64_t began_ns = parts_.clock.monotonic_ns();
  std::uint64_t offset = 0;
  InFlight pushes(kLayersInFlight);
  ChainLayers layers({parts_.cold, parts_.memory, parts_.catalog, parts_.hot_tier, parts_.metrics},
                     chain.links, chain.model.num_layers, owner, kLayersAhead,
                     [&](std::size_t link, const SegmentRow& now) {
                       return chain.is_held_by(now, link, request);
                     });

  for (std::uint32_t layer = 0; layer < chain.model.num_layers;) {
    co_await pushes.enter();
    auto leases = co_await layers.lease(layer);
    if (!leases.ok()) {
      pushes.leave(leases.status());
      break;
    }
    if (get->traced && layer == 0) get->in_memory = parts_.clock.now();
    // The reader can begin with the first layer, so a large first layer is sent alone.
    if (layer == 1 && offset > kInlineCutBytesMax) co_await pushes.alone();
    auto cut = co_await cut_records(chain, request, *leases, layer, owner);
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
    get->any_cold = get->any_cold || layers.was_cold(layer);
    if (layer == 0) get->first_cold = get->any_cold;
    spawn(push(request, std::move(leases).value(), std::move(cut).value(), std::move(message), to,
               pushes, served));
    ++layer;
  }
  const Status pushed = co_await pushes.drain();
  co_await layers.end();
  parts_.memory.retry();  // leases of layers that were not pushed have ended too
  PRECIS_CO_TRY(pushed);

  for (const Catalog::Row& row : layers.links()) parts_.catalog.count_hit(row->id);
  parts_.rate.served(offset, static_cast<double>(parts_.clock.monotonic_ns() - began_ns) * 1e-9);
  parts_.metrics.pushed_bytes += static_cast<std::int64_t>(offset);
  co_return msg::GetDone{offset};
}

Task<Result<LayerCut>> GetPath::cut_records(const GetChain& chain, const msg::Get& request,
                                            const Leases& leases, std::uint32_t layer,
                                            const Owner& owner) {
  std::vector<Bytes> records;
  std::size_t size_bytes = 0;
  for (const HotTier::Lease& lease : leases) {
    records.push_back(lease->bytes());
    size_bytes += records.back().size();
  }
  const auto cut_layers = [&]() -> Result<LayerCut> {
    PRECIS_ASSIGN(const LayerRecords opened,
                  open_layer(records, {layer, chain.head_begin, chain.num_heads,
                                       chain.model.head_dim, chain.model.dtype}));
    auto counts = chain.counts(request, layer);
    if (counts.empty()) {
      counts = counts_at(
          opened, chain.entries,
          links_out_of_sight(chain.model, chain.links, layer, request.links.back().matched_end));
    }
    return cut_layer(opened, std::move(counts), parts_.zeros);
  };
  if (size_bytes <= kInlineCutBytesMax) co_return cut_layers();
  co_return co_await run_on(parts_.reads, parts_.loop, owner, cut_layers);
}

// The leases live until the layer's bytes are in place: a lease ends exactly when its transfer
// ends.
Task<void> GetPath::push(const msg::Get& request, Leases leases, LayerCut cut,
                         msg::LayerServed message, Connection& to, InFlight& in_flight,
                         std::function<Status(msg::LayerServed)>& served) {
  Status status = co_await completion<Status>([&](Completion done) {
    const Registration& local = registration_of(cut.ranges, parts_.registration);
    to.push(std::move(cut.ranges), local, request.destination, message.offset, std::move(done));
  });
  leases.clear();
  parts_.memory.retry();
  if (status.ok()) status = served(std::move(message));
  in_flight.leave(status);
}

}  // namespace precis
