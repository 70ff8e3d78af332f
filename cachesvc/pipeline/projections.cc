#include "cachesvc/pipeline/projections.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "cachesvc/catalog/projection_row.h"
#include "precis/block_digest.h"

namespace precis {
namespace {

bool is_gram(Catalog::ProjectionPart part) { return part == Catalog::ProjectionPart::kGrams; }

}  // namespace

Projections::Part Projections::part_of(const Recipe& recipe) {
  return recipe.value_norm == ValueNorm::kL2Gram ? Part::kGrams : Part::kWeights;
}

std::size_t Projections::part_bytes(const StoredProjection& row, Part part) {
  return is_gram(part) ? row.grams_bytes : row.weights_bytes;
}

kernels::OutputProjection Projections::view(const StoredProjection& row, Part part, Bytes bytes) {
  kernels::OutputProjection o_proj;
  if (is_gram(part)) {
    o_proj.gram = {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
  } else {
    o_proj.data = bytes.data();
    o_proj.width = row.width;
    o_proj.dtype = row.dtype;
  }
  return o_proj;
}

// ---- adding -------------------------------------------------------------------------------------

Task<Status> Projections::add(const Tenant& tenant, msg::PushProjection request, Connection& from) {
  const Status status = co_await take_in(tenant, std::move(request), from);
  parts_.memory.retry();  // its memory is free now, on errors too
  co_return status;
}

Task<Status> Projections::take_in(const Tenant& tenant, msg::PushProjection request,
                                  Connection& from) {
  PRECIS_CO_ASSIGN(const ModelSpec model, parts_.catalog.model(tenant.name, request.model));
  StoredProjection row{tenant.name,
                       request.model,
                       request.layer,
                       request.width,
                       request.dtype,
                       request.weights.size_bytes,
                       grams_bytes(model),
                       {},
                       {}};
  PRECIS_CO_TRY(check_projection_row(row, model));

  std::vector<PayloadMemory::Want> wants(1,
                                         PayloadMemory::Want{row.weights_bytes, Arena::End::kHigh});
  PRECIS_CO_ASSIGN(auto pieces,
                   co_await parts_.memory.acquire(std::move(wants), tenant.owner(&from)));
  const MutableBytes weights = pieces.front()->bytes();
  const Status pulled = co_await completion<Status>([&](Completion done) {
    const Bytes into[] = {weights};
    from.pull(request.weights, 0, weights, registration_of(into, parts_.registration),
              std::move(done));
  });
  PRECIS_CO_TRY(pulled);

  std::vector<float> grams;
  PRECIS_CO_TRY(co_await run_on(parts_.compute, parts_.loop, [&]() -> Status {
    const kernels::OutputProjection o_proj = view(row, Part::kWeights, weights);
    grams = kernels::gram_matrices(o_proj, model.num_q_heads, model.head_dim);
    // A weight that is not finite makes the diagonal of its row of the Gram matrix not finite.
    for (const float sum : grams) {
      if (std::isfinite(sum)) continue;
      return Status::invalid("the output projection of layer " + std::to_string(row.layer) +
                             " has weights that are not finite, or whose squares are not");
    }
    row.weights = sha256(weights);
    row.grams = sha256(std::as_bytes(std::span(grams)));
    return Status();
  }));
  PRECIS_CO_TRY(co_await run_on(parts_.storage, parts_.loop, tenant.owner(&from), [&] {
    return parts_.catalog.share_projection(row, weights, std::as_bytes(std::span(grams)));
  }));
  const Status stored = co_await run_on(parts_.rows, parts_.loop, tenant.owner(&from), [&] {
    return parts_.catalog.add_projection(row, weights, std::as_bytes(std::span(grams)));
  });
  co_return stored;
}

// ---- leasing ------------------------------------------------------------------------------------

HotTier::Lease Projections::find(const Catalog::Projection& row, Part part) {
  return parts_.hot_tier.find(projection_id(row->tenant, row->model, is_gram(part)), row->layer,
                              row);
}

Task<Result<HotTier::Lease>> Projections::read(const Catalog::Projection& row, Part part,
                                               std::unique_ptr<Arena::Buffer> memory, Owner owner) {
  const Status status = co_await run_on(parts_.reads, parts_.loop, std::move(owner), [&] {
    return parts_.catalog.read_projection(*row, part, memory->bytes());
  });
  if (status.code() == StatusCode::kCorruption) {
    parts_.log.error(
        "stored bytes failed their check",
        {{"model", row->model.hex()}, {"layer", row->layer}, {"status", status.message()}});
  }
  PRECIS_CO_TRY(status);
  co_return parts_.hot_tier.insert(row->tenant,
                                   projection_id(row->tenant, row->model, is_gram(part)),
                                   row->layer, row, std::move(memory));
}

}  // namespace precis
