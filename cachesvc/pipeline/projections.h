// Output projections: each layer's is added once, and leased to puts whose recipe needs it. In
// memory they live in the hot tier like the layers of segments, and are evicted like them. Loop
// thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "cachesvc/base/log.h"
#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/fair_executor.h"
#include "cachesvc/pipeline/payload_memory.h"
#include "cachesvc/pipeline/tenant.h"
#include "cachesvc/store/hot_tier.h"
#include "cachesvc/transport/transport.h"
#include "precis/kernels.h"

namespace precis {

class Projections {
 public:
  // All must outlive this object.
  struct Parts {
    EventLoop& loop;
    Executor& compute;
    FairExecutor& storage;
    FairExecutor& rows;  // for rows: that of settings if nodes share a storage, else `storage`
    FairExecutor& reads;
    PayloadMemory& memory;
    const Registration& registration;  // of the arena
    Catalog& catalog;
    HotTier& hot_tier;
    Log& log;
  };
  explicit Projections(Parts parts) : parts_(std::move(parts)) {}

  // Pulls, checks and stores one layer's weights with their Gram matrices. kInvalidArgument names
  // the field: a layer past the model's last, a region of the wrong size, a weight that is not
  // finite, or a layer that has other weights already.
  Task<Status> add(const Tenant& tenant, msg::PushProjection request, Connection& from);

  // The part of a projection that `recipe` needs, and its size in bytes.
  using Part = Catalog::ProjectionPart;
  static Part part_of(const Recipe& recipe);
  static std::size_t part_bytes(const StoredProjection& row, Part part);
  // Null if the part is not in memory; then call read() with a buffer of part_bytes().
  HotTier::Lease find(const Catalog::Projection& row, Part part);
  Task<Result<HotTier::Lease>> read(const Catalog::Projection& row, Part part,
                                    std::unique_ptr<Arena::Buffer> memory, Owner owner);
  static kernels::OutputProjection view(const StoredProjection& row, Part part, Bytes bytes);

 private:
  Task<Status> take_in(const Tenant& tenant, msg::PushProjection request, Connection& from);

  Parts parts_;
};

}  // namespace precis
