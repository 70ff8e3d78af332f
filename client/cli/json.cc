#include "client/cli/json.h"

#include "client/cli/render.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

Json id_json(const SegmentId& id) { return id.is_null() ? Json() : Json(id.hex()); }

constexpr int kDepthMax = 16;

// A canonical recipe is JSON itself; any other form is printed as a string.
Json recipe_json(const std::string& recipe) {
  Json parsed = parse_json(recipe);
  return parsed.is_discarded() ? Json(recipe) : parsed;
}

Json plan_json(const Plan& plan) {
  Json layers = Json::array();
  for (std::uint32_t l = 0; l < plan.num_layers; ++l) {
    Json heads = Json::array();
    for (std::uint32_t h = 0; h < plan.num_kv_heads; ++h) heads.push_back(plan.at(l, h));
    layers.push_back(std::move(heads));
  }
  return layers;
}

}  // namespace

std::string json_text(const Json& json) {
  // The library leaves DEL, C1 and bidirectional controls as they are. They occur only within
  // strings, where \uXXXX is valid JSON.
  return printable_lines(json.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
}

Json parse_json(const std::string& text) {
  bool deep = false;
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    deep = deep || depth > kDepthMax;
    return !deep;
  };
  Json parsed = Json::parse(text, shallow, /*allow_exceptions=*/false);
  return deep ? Json(Json::value_t::discarded) : parsed;
}

Json to_json(const std::optional<Budget>& budget) {
  if (!budget) return {};
  switch (budget->kind) {
    case Budget::Kind::kAll: return {{"kind", "all"}, {"value", nullptr}};
    case Budget::Kind::kRatio:
      return {{"kind", "ratio"}, {"value", static_cast<double>(budget->value) / 1e6}};
    case Budget::Kind::kEntries: return {{"kind", "entries"}, {"value", budget->value}};
    case Budget::Kind::kBytes: return {{"kind", "bytes"}, {"value", budget->value}};
    case Budget::Kind::kQuality:
      return {{"kind", "quality"},
              {"value", budget->quality_share_ppm() / 1e6},
              {"cap", budget->quality_cap_ppm() / 1e6}};
  }
  return {};
}

Json to_json(const msg::ModelRow& row) {
  const ModelSpec& m = row.model;
  return {{"fingerprint", row.fingerprint.hex()},
          {"name", m.name},
          {"revision", m.revision},
          {"num_layers", m.num_layers},
          {"num_q_heads", m.num_q_heads},
          {"num_kv_heads", m.num_kv_heads},
          {"head_dim", m.head_dim},
          {"dtype", dtype_name(m.dtype)},
          {"rope_theta", m.rope_theta},
          {"block_tokens", m.block_tokens},
          {"token_bytes", m.token_bytes()},
          {"segments", row.segments},
          {"projections", row.projections}};
}

Json to_json(const msg::ProfileRow& row) {
  Json json = {{"name", row.name},
               {"kind", row.kind},
               {"model", row.model.hex()},
               {"scorer", recipe_json(row.scorer)},
               {"digest", row.digest.hex()},
               {"num_tokens", row.num_tokens},
               {"text_digest", row.text_digest},
               {"added_unix_ms", row.added_unix_ms}};
  if (!row.json.empty()) json["profile"] = recipe_json(row.json);
  return json;
}

Json to_json(const msg::SegmentInfo& row) {
  Json json = {{"id", row.id.hex()},
               {"parent", id_json(row.parent)},
               {"model", row.model.hex()},
               {"adapter", row.adapter},
               {"begin", row.begin},
               {"end", row.end},
               {"preset", row.preset},
               {"recipe", recipe_json(row.recipe)},
               {"keep", to_json(std::optional(row.budget))},
               {"trimmed", to_json(row.trimmed)},
               {"parent_read", to_json(row.parent_read)},
               {"entries", row.entries},
               {"original_bytes", row.original_bytes},
               {"stored_bytes", row.stored_bytes},
               {"compress_seconds", row.compress_seconds},
               {"created_unix_ms", row.created_unix_ms},
               {"hits", row.hits},
               {"children", row.children},
               {"in_memory", row.in_memory},
               {"out_of_service", row.out_of_service}};
  if (row.plan) json["plan"] = plan_json(*row.plan);
  return json;
}

Json to_json(const msg::SessionRow& row) {
  return {{"name", row.name},
          {"tip", id_json(row.tip)},
          {"tip_end", row.tip_end},
          {"turns", row.turns},
          {"ttl_seconds", row.ttl_seconds},
          {"expires_unix_ms", row.expires_unix_ms},
          {"pinned", row.pinned},
          {"updated_unix_ms", row.updated_unix_ms}};
}

Json to_json(const msg::BudgetRow& row) {
  return {{"scope", row.scope},
          {"recipe", row.recipe.empty() ? Json() : Json(row.recipe)},  // as the user wrote it
          {"keep", to_json(row.keep)},
          {"version", row.version},
          {"set_unix_ms", row.set_unix_ms}};
}

Json to_json(const msg::Budgets& budgets) {
  return {{"layers", rows_json(budgets.layers)}, {"effective", to_json(budgets.effective)}};
}

Json to_json(const ModelBudgets& of_model) {
  Json json = {{"model", of_model.model.fingerprint.hex()}, {"name", of_model.model.model.name}};
  json.update(to_json(of_model.budgets));
  return json;
}

Json to_json(const msg::ServerStatus& s) {
  return {{"server", s.server},
          {"tenant", s.tenant},
          {"data_dir", s.data_dir},
          {"transport", s.transport},
          {"device", s.device},
          {"rdma", s.rdma},
          {"uptime_seconds", s.uptime_seconds},
          {"models", s.models},
          {"segments", s.segments},
          {"segments_out_of_service", s.segments_out_of_service},
          {"sessions", s.sessions},
          {"stored_bytes", s.stored_bytes},
          {"memory_bytes", s.memory_bytes},
          {"memory_limit_bytes", s.memory_limit_bytes},
          {"disk_free_bytes", s.disk_free_bytes},
          {"disk_min_free_bytes", s.disk_min_free_bytes},
          {"disk_low", s.disk_low},
          {"disk_fault", s.disk_fault},
          {"exposed", s.exposed}};
}

Json to_json(const msg::Removed& removed) {
  return {{"segments", removed.segments}, {"bytes", removed.bytes}};
}

Json to_json(const msg::Stats& stats) {
  Json json = Json::object();
  for (const msg::Stat& row : stats.rows) {
    const bool whole = row.value >= 0 && row.value < 9e15 &&
                       row.value == static_cast<double>(static_cast<std::uint64_t>(row.value));
    json[row.name] = whole ? Json(static_cast<std::uint64_t>(row.value)) : Json(row.value);
  }
  return json;
}

}  // namespace precis::cli
