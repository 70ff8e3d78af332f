// Gets: resolve -> for each layer lease, cut, push -> done. Layers go straight into the client's
// buffers; later layers are read from the disk while earlier ones are cut and sent. Loop thread
// only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/chain_layers.h"
#include "cachesvc/pipeline/cold_reads.h"
#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/get_chain.h"
#include "cachesvc/pipeline/in_flight.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/pipeline/restore_rate.h"
#include "cachesvc/store/hot_tier.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class GetPath {
 public:
  // All must outlive the path.
  struct Parts {
    EventLoop& loop;
    FairExecutor& reads;  // cuts
    ColdReads& cold;
    PayloadMemory& memory;
    const Registration& registration;  // of the arena
    Bytes zeros;                       // kSectionAlign zero bytes of the arena
    Catalog& catalog;
    HotTier& hot_tier;
    RestoreRate& rate;
    Metrics& metrics;
    const Clock& clock;
  };
  explicit GetPath(Parts parts)
      : parts_(std::move(parts)), resolver_(parts_.loop, parts_.reads, parts_.catalog) {}

  // A get in progress; the client may stop it between layers.
  struct Get {
    std::uint64_t id = 0;
    bool canceled = false;
    // Set while it is served, for metrics.
    std::string model = {};   // its name
    bool first_cold = false;  // whether the first layer came from the disk
    bool any_cold = false;    // whether a layer did
    bool traced = false;
    std::optional<Clock::Time> in_memory = {};  // of a traced get: since when its first layer is
  };

  // Serves `request` layer by layer. `served` is called when a layer's bytes are in place; if it
  // returns an error, the get ends with that error.
  Task<Result<msg::GetDone>> run(std::shared_ptr<Get> get, const Tenant& tenant, msg::Get request,
                                 Connection& to, std::function<Status(msg::LayerServed)> served);

 private:
  using Leases = ChainLayers::Leases;
  Task<Result<LayerCut>> cut_records(const GetChain& chain, const msg::Get& request,
                                     const Leases& leases, std::uint32_t layer, const Owner& owner);
  Task<void> push(const msg::Get& request, Leases leases, LayerCut cut, msg::LayerServed message,
                  Connection& to, InFlight& in_flight,
                  std::function<Status(msg::LayerServed)>& served);

  Parts parts_;
  const GetResolver resolver_;
};

}  // namespace precis
