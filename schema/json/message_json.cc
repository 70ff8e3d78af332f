#include "schema/json/message_json.h"

#include <set>
#include <string>
#include <vector>

#include "precis/printable.h"

namespace precis::message_json {
namespace {

constexpr int kDepthMax = 16;
// A key of an object is found in linear time.
constexpr int kKeysMax = 1000;

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
  // The library does not escape DEL, C1 and bidirectional control characters. They occur only
  // within strings, where \uXXXX is valid JSON.
  return printable_lines(json.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
}

std::string json_line(const Json& json) {
  return printable_lines(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json parse_json(const std::string& text) {
  using Event = Json::parse_event_t;
  bool refused = false;
  int keys = 0;
  std::vector<std::set<std::string>> open;  // the keys of each object that has not ended
  const auto is_taken = [&](int depth, Event event, Json& parsed) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key) {
      refused =
          refused || ++keys > kKeysMax || !open.back().insert(parsed.get<std::string>()).second;
    }
    refused = refused || depth > kDepthMax;
    return !refused;
  };
  Json parsed = Json::parse(text, is_taken, /*allow_exceptions=*/false);
  return refused ? Json(Json::value_t::discarded) : parsed;
}

Json to_json(const std::optional<Budget>& budget) {
  if (!budget) return {};
  switch (budget->kind) {
    case Budget::Kind::kAll: return {{"kind", "all"}, {"value", nullptr}};
    case Budget::Kind::kRatio:
      return {{"kind", "ratio"}, {"value", static_cast<double>(budget->value) / 1e6}};
    case Budget::Kind::kEntries: return {{"kind", "entries"}, {"value", budget->value}};
    case Budget::Kind::kBytes: return {{"kind", "bytes"}, {"value", budget->value}};
    case Budget::Kind::kScoreMass: return to_json(std::optional(budget->without_score_mass()));
    case Budget::Kind::kLoss:
      return {{"kind", "loss"}, {"value", static_cast<double>(budget->value) / 1e6}};
    case Budget::Kind::kByteShare:
      return {{"kind", "byte_share"}, {"value", static_cast<double>(budget->value) / 1e6}};
  }
  return {};
}

Json to_json(const ModelSpec& model) {
  return {{"name", model.name},
          {"revision", model.revision},
          {"num_layers", model.num_layers},
          {"num_q_heads", model.num_q_heads},
          {"num_kv_heads", model.num_kv_heads},
          {"head_dim", model.head_dim},
          {"dtype", dtype_name(model.dtype)},
          {"rope_theta", model.rope_theta},
          {"rope_scaling", model.rope_scaling},
          {"block_tokens", model.block_tokens},
          {"windows", model.windows},
          {"token_bytes", model.token_bytes()}};
}

Json field_json(std::string_view name, const std::string& text) {
  if (name == "json") return text.empty() ? Json(Json::value_t::discarded) : recipe_json(text);
  return name == "recipe" || name == "scorer" ? recipe_json(text) : Json(text);
}

Json field_json(std::string_view, const SegmentId& id) {
  return id.is_null() ? Json() : Json(id.hex());
}

Json field_json(std::string_view, const Digest& digest) { return digest.hex(); }
Json field_json(std::string_view, Encoding encoding) { return encoding_name(encoding); }
Json field_json(std::string_view, const Budget& budget) { return to_json(std::optional(budget)); }
Json field_json(std::string_view, const std::optional<Budget>& budget) { return to_json(budget); }

Json field_json(std::string_view, const std::optional<Plan>& plan) {
  return plan ? plan_json(*plan) : Json(Json::value_t::discarded);
}

Json field_json(std::string_view, const std::optional<Digest>& digest) {
  return digest ? Json(digest->hex()) : Json();
}

Json to_json(const msg::ModelRow& row) {
  Json json = {{"fingerprint", row.fingerprint.hex()}};
  json.update(to_json(row.model));
  json["segments"] = row.segments;
  json["stored_bytes"] = row.stored_bytes;
  json["original_bytes"] = row.original_bytes;
  json["projections"] = row.projections;
  json["hits"] = row.hits;
  json["hit_tokens"] = row.hit_tokens;
  return json;
}

Json to_json(const msg::BudgetRow& row) {
  return {{"scope", row.scope},
          {"recipe", row.recipe.empty() ? Json() : Json(row.recipe)},  // as the user wrote it
          {"keep", to_json(row.keep)},
          {"limit", to_json(row.limit)},
          {"version", row.version},
          {"set_unix_ms", row.set_unix_ms},
          {"session", row.session.empty() ? Json() : Json(row.session)}};
}

Json to_json(const msg::Budgets& budgets) {
  Json json{{"layers", rows_json(budgets.layers)},
            {"effective", to_json(budgets.effective)},
            {"sessions", rows_json(budgets.sessions)},
            {"application", budgets.application == 0 ? Json() : Json(budgets.application)}};
  if (budgets.next_put) json["next_put"] = to_json(*budgets.next_put);  // only of a dry run
  return json;
}

Json to_json(const msg::KvEvent& event) {
  using Kind = msg::KvEvent::Kind;
  constexpr const char* kKinds[] = {"stored", "trimmed", "removed", "lost"};
  constexpr const char* kCauses[] = {"asked",   "capacity",     "damaged",
                                     "dropped", "consolidated", "moved"};
  static_assert(std::size(kKinds) == static_cast<std::size_t>(Kind::kLost) + 1);
  static_assert(std::size(kCauses) == static_cast<std::size_t>(msg::KvEvent::Cause::kMoved) + 1);
  Json json{{"event", kKinds[static_cast<std::size_t>(event.kind)]}, {"position", event.position}};
  if (event.kind == Kind::kLost) {
    json["lost"] = event.lost == 0 ? Json() : Json(event.lost);
    return json;
  }
  json.update({{"unix_ms", event.unix_ms},
               {"segment", event.segment.hex()},
               {"parent", field_json("parent", event.parent)},
               {"model", event.model.hex()},
               {"adapter", event.adapter},
               {"begin", event.begin},
               {"end", event.end},
               {"root", event.root.hex()}});
  if (event.kind != Kind::kTrimmed) json["blocks"] = field_json("blocks", event.blocks);
  if (event.kind != Kind::kStored) json["bytes_before"] = event.bytes_before;
  if (event.kind == Kind::kRemoved) {
    json["cause"] = kCauses[static_cast<std::size_t>(event.cause)];
    return json;
  }
  json["block_tokens"] = event.block_tokens;
  json["stored_bytes"] = event.stored_bytes;
  json["keep"] = field_json("keep", event.keep);
  json["tier"] = event.tier == msg::KvEvent::Tier::kMemory ? "memory" : "disk";
  if (event.kind == Kind::kStored) {
    json["parent_block"] = field_json("parent_block", event.parent_block);
  }
  return json;
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

}  // namespace precis::message_json
