#include "cachesvc/server/model_requests.h"

#include "cachesvc/server/change_text.h"
#include "cachesvc/server/hit_counts.h"
#include "precis/block_digest.h"

namespace precis {

void ModelRequests::add_hits(msg::ModelRow& row) const {
  const HitCounts counts = hits_of(caller_.parts.metrics, tenant_, row.model.name);
  row.hits = counts.hits;
  row.hit_tokens = counts.tokens;
}

Task<Answer> ModelRequests::on(msg::RegisterModel request) {
  PRECIS_CO_TRY(request.model.validate());
  const bool known = catalog_.model(tenant_, model_fingerprint(request.model)).ok();
  if (!known && caller_.tenant.role < Role::kWriter) {
    co_return Status::denied("model '" + request.model.name + "' is not registered, and tenant '" +
                             tenant_ + "' has the role reader: a writer must register it");
  }
  PRECIS_CO_ASSIGN(auto row, co_await caller_.changed(
                                 [&] { return catalog_.register_model(tenant_, request.model); }));
  if (!known) {
    caller_.note({.request = "RegisterModel",
                  .event = "model registered",
                  .of = row.fingerprint.hex(),
                  .text = row.model.name,
                  .is = row.model.name});
  }
  add_hits(row);
  co_return msg::ReplyBody(std::move(row));
}

Task<Answer> ModelRequests::on(msg::ListModels request) {
  PRECIS_CO_ASSIGN(auto page,
                   co_await caller_.listed([&] { return catalog_.models_page(tenant_, request); }));
  for (msg::ModelRow& row : page.rows) add_hits(row);
  co_return msg::ReplyBody(std::move(page));
}

Task<Answer> ModelRequests::on(msg::RemoveModel request) {
  const auto model = catalog_.model(tenant_, request.model);
  PRECIS_CO_TRY(co_await caller_.changed(
      [&] { return catalog_.remove_model(tenant_, request.model, request.here_only); }));
  if (request.here_only) co_return answer(Status());
  for (const bool is_gram : {false, true}) {
    caller_.parts.hot_tier.erase(projection_id(tenant_, request.model, is_gram));
  }
  const std::string name = model.ok() ? model->name : "";
  caller_.note({"RemoveModel", "model removed", request.model.hex(), name, name});
  co_return answer(Status());
}

Task<Answer> ModelRequests::on(msg::PushProjection request) {
  const auto find = [this, model = request.model, layer = request.layer] {
    return catalog_.projection(tenant_, model, layer);
  };
  const std::string of =
      "layer " + std::to_string(request.layer) + " of model " + request.model.hex();
  const bool known = find().ok();  // a stored projection cannot be replaced
  PRECIS_CO_TRY(co_await caller_.parts.projections.add(caller_.tenant, std::move(request),
                                                       caller_.connection));
  const auto row = find();
  if (!known && row.ok()) {
    caller_.note({.request = "PushProjection", .of = of, .is = (*row)->weights.hex()});
  }
  co_return answer(Status());
}

Task<Answer> ModelRequests::on(msg::AddProfile request) {
  const auto before = catalog_.profiles(tenant_, std::nullopt);
  PRECIS_CO_ASSIGN(auto row, co_await caller_.changed(
                                 [&] { return catalog_.add_profile(tenant_, request.json); }));
  caller_.note({"AddProfile", "profile added", row.name, row.kind + " for model " + row.model.hex(),
                digest_of(before, row.model, row.name), row.digest.hex()});
  co_return msg::ReplyBody(std::move(row));
}

Task<Answer> ModelRequests::on(msg::ListProfiles request) {
  if (request.model) {
    PRECIS_CO_TRY(catalog_.model(tenant_, *request.model).status());
  }
  co_return msg::ReplyBody(msg::Profiles{catalog_.profiles(tenant_, request.model)});
}

Task<Answer> ModelRequests::on(msg::ShowProfile request) {
  co_return answer(co_await caller_.stored(
      [&] { return catalog_.profile(tenant_, request.model, request.name); }));
}

Task<Answer> ModelRequests::on(msg::RemoveProfile request) {
  const auto was =
      digest_of(catalog_.profiles(tenant_, request.model), request.model, request.name);
  PRECIS_CO_TRY(co_await caller_.changed(
      [&] { return catalog_.remove_profile(tenant_, request.model, request.name); }));
  caller_.note(
      {"RemoveProfile", "profile removed", request.name, "of model " + request.model.hex(), was});
  co_return answer(Status());
}

}  // namespace precis
