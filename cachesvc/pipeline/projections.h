// Output projections: taken in once, layer by layer, and leased to the puts whose recipe needs
// them. In memory they live in the hot tier as segments' layers do, so that they give way like
// them. All methods on the loop's thread.
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
  // All outlive it.
  struct Parts {
    EventLoop& loop;
    Executor& compute;
    FairExecutor& storage;
    FairExecutor& reads;
    PayloadMemory& memory;
    const Registration& registration;  // of the arena
    Catalog& catalog;
    HotTier& hot_tier;
    Log& log;
  };
  explicit Projections(Parts parts) : parts_(std::move(parts)) {}

  // Pulls, checks and stores one layer's weights with their Gram matrices. kInvalidArgument names
  // the field: a layer past the model's, a region of another size, a weight that is not finite, a
  // layer that has others already.
  Task<Status> add(const Tenant& tenant, msg::PushProjection request, Connection& from);

  // What `recipe` needs of a projection, and how many bytes that is.
  using Part = Catalog::ProjectionPart;
  static Part part_of(const Recipe& recipe);
  static std::size_t part_bytes(const StoredProjection& row, Part part);
  // Null if it is not in memory; then read() it into a buffer of part_bytes().
  HotTier::Lease find(const Catalog::Projection& row, Part part);
  Task<Result<HotTier::Lease>> read(const Catalog::Projection& row, Part part,
                                    std::unique_ptr<Arena::Buffer> memory, Owner owner);
  static kernels::OutputProjection view(const StoredProjection& row, Part part, Bytes bytes);

 private:
  Task<Status> take_in(const Tenant& tenant, msg::PushProjection request, Connection& from);

  Parts parts_;
};

}  // namespace precis
