// Plans a put: its recipe and budget, what the recipe needs, the segment's place on the token path,
// and the memory that the put needs. Loop thread only, unless a function says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cachesvc/base/task.h"
#include "cachesvc/pipeline/open_put.h"
#include "cachesvc/pipeline/put_parts.h"
#include "cachesvc/pipeline/put_places.h"
#include "cachesvc/pipeline/split.h"
#include "cachesvc/pipeline/tenant.h"

namespace precis {

class PutPlanner {
 public:
  // `parts` must outlive this object.
  explicit PutPlanner(const PutParts& parts);

  // In a cluster: takes the settings that other nodes have just changed.
  using CatchUp = std::function<Task<Status>(Owner)>;
  void catch_up_by(CatchUp catch_up) { catch_up_ = std::move(catch_up); }

  struct Planned {
    std::shared_ptr<OpenPut> put;
    Status status;  // why the put is refused; its writer may still join another writer's put
  };
  Task<Result<Planned>> plan(const Tenant& tenant, msg::BeginPut request, const Connection& from,
                             std::optional<std::uint32_t> shard);

  // Shares the budget among the put's heads, and waits until there is room for all that it stores
  // and stages.
  Task<Result<std::unique_ptr<PutRoom::Place>>> find_room(OpenPut& put, const Tenant& tenant,
                                                          const Connection& from);

 private:
  Status settle(const Tenant& tenant, const msg::BeginPut& request, OpenPut& put);
  Task<Status> equip(const Tenant& tenant, const msg::BeginPut& request, OpenPut& put);
  Status find_equipment(const Tenant& tenant, const Digest& model, OpenPut& put);
  static Status find_loss(const msg::BeginPut& request, OpenPut& put);
  Task<Status> split(const Tenant& tenant, const msg::BeginPut& request, OpenPut& put,
                     PutPlaces::Found& found);
  Status begin(OpenPut& put);
  void set_hints(const msg::Hints& hints, OpenPut& put);
  Status no_room(const OpenPut& put, const std::string& bytes) const;
  Task<Status> make_joiner(OpenPut& put);

  const PutParts& parts_;
  const PutPlaces places_;
  SplitPath split_;
  CatchUp catch_up_;  // none: there is no cluster
};

}  // namespace precis
