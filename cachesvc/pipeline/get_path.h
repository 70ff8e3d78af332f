// get: match -> lease -> cut -> push, layer by layer, straight into the client's buffers
// (ARCHITECTURE.md, Get). The disk reads ahead while layers are cut and travel. On the loop's
// thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cachesvc/base/clock.h"
#include "cachesvc/base/metrics.h"
#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/chain_layers.h"
#include "cachesvc/pipeline/cold_reads.h"
#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/in_flight.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/pipeline/restore_rate.h"
#include "cachesvc/pipeline/tenant.h"
#include "cachesvc/store/hot_tier.h"
#include "cachesvc/transport/transport.h"

namespace precis {

class GetPath {
 public:
  // All outlive the path.
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
  explicit GetPath(Parts parts) : parts_(std::move(parts)) {}

  // A get under way; the client may have it stopped between layers.
  struct Get {
    std::uint64_t id = 0;
    bool canceled = false;
  };

  // Serves `request` layer by layer; `served` is called after each layer's bytes are in place; an
  // error that it returns ends the get.
  Task<Result<msg::GetDone>> run(std::shared_ptr<Get> get, const Tenant& tenant, msg::Get request,
                                 Connection& to, std::function<Status(msg::LayerServed)> served);

 private:
  struct Prefix;  // the links of one get, resolved
  using Leases = ChainLayers::Leases;
  Task<Result<Prefix>> resolve(const Tenant& tenant, const msg::Get& request, Owner owner) const;
  // What is stored, or what a lease keeps of what was matched: `leased` is set then.
  Result<Catalog::Row> find(const Tenant& tenant, const msg::GetLink& link, bool& leased) const;
  // Of the request's links, but for what their counts ask for.
  Result<Prefix> find(const Tenant& tenant, const msg::Get& request) const;
  Task<Result<LayerCut>> cut_records(const Prefix& prefix, const msg::Get& request,
                                     const Leases& leases, std::uint32_t layer, const Owner& owner);
  Task<void> push(const msg::Get& request, Leases leases, LayerCut cut, msg::LayerServed message,
                  Connection& to, InFlight& in_flight,
                  std::function<Status(msg::LayerServed)>& served);
  Parts parts_;
};

}  // namespace precis
