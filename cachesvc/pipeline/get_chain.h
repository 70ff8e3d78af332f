// Resolves the request of a get: which rows it reads, and how much of each. Loop thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "cachesvc/base/task.h"
#include "cachesvc/catalog/catalog.h"
#include "cachesvc/pipeline/fair_executor.h"
#include "cachesvc/pipeline/tenant.h"

namespace precis {

// The segments of one get, from the root on.
struct GetChain {
  ModelSpec model;
  std::uint32_t head_begin = 0, num_heads = 0;
  std::vector<Catalog::Row> links;
  std::vector<std::uint64_t> entries;  // the cut of each link; empty if the request has counts

  // Returns whether `row`, as link `link`, stores what the get reads of that link.
  bool is_held_by(const SegmentRow& row, std::size_t link, const msg::Get& request) const;
  // Returns how many first entries of each record of a layer are served, [num_links, num_heads], as
  // the request says; empty if it has no counts.
  std::vector<std::uint32_t> counts(const msg::Get& request, std::uint32_t layer) const;
};

class GetResolver {
 public:
  // All must outlive this object. `reads` runs work that grows with the size of the request.
  GetResolver(EventLoop& loop, FairExecutor& reads, Catalog& catalog)
      : loop_(loop), reads_(reads), catalog_(catalog) {}

  // kNotFound if a segment was removed, replaced or trimmed since the lookup; kInvalidArgument
  // naming the field, also if the destination is too small.
  Task<Result<GetChain>> resolve(const Tenant& tenant, const msg::Get& request, Owner owner) const;

 private:
  Result<GetChain> find(const Tenant& tenant, const msg::Get& request) const;
  Result<Catalog::Row> find(const Tenant& tenant, const msg::GetLink& link, bool& leased) const;

  EventLoop& loop_;
  FairExecutor& reads_;
  Catalog& catalog_;
};

}  // namespace precis
