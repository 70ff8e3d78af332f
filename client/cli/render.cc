#include "client/cli/render.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/cli/heatmap.h"
#include "client/cli/json.h"
#include "client/cli/table.h"
#include "precis/printable.h"
#include "precis/recipe.h"

namespace precis::cli {
namespace {

// Enough digits of an id to be unambiguous in practice; show and rm take any unambiguous beginning.
constexpr std::size_t kShortId = 12;
constexpr std::size_t kDigest = 64;  // the digits of a whole digest

std::string short_id(const SegmentId& id) {
  return id.is_null() ? "-" : id.hex().substr(0, kShortId);
}

std::string model_name(const Digest& fingerprint, std::span<const msg::ModelRow> models) {
  for (const msg::ModelRow& row : models) {
    if (row.fingerprint == fingerprint) return row.model.name;
  }
  return fingerprint.hex().substr(0, kShortId);
}

std::string keep_text(const std::optional<Budget>& keep) {
  if (!keep) return "-";
  return keep->kind == Budget::Kind::kBytes ? bytes_text(keep->value) : keep->to_string();
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

// The tip's id, or its first digits. If a session has had turns but has no tip, its tip was removed
// with a segment.
std::string tip_text(const msg::SessionRow& row, std::size_t digits = std::string::npos) {
  if (!row.tip.is_null()) return row.tip.hex().substr(0, digits);
  return row.turns > 0 ? "removed" : "none yet";
}

std::string used_text(const msg::SegmentInfo& row) {
  return row.last_used_unix_ms == 0 ? "never" : when_text(row.last_used_unix_ms);
}

// "damaged": the segment or one of its ancestors is damaged.
std::string tier_text(const msg::SegmentInfo& row) {
  if (row.out_of_service) return "damaged";
  return row.in_memory ? "memory" : "disk";
}

// The scorer of a canonical recipe. A text of another form is returned unchanged.
std::string scorer_name(const std::string& recipe) {
  const Json parsed = parse_json(recipe);
  if (!parsed.is_object()) return recipe;
  const auto scorer = parsed.find("scorer");
  return scorer != parsed.end() && scorer->is_string() ? scorer->get<std::string>() : recipe;
}

}  // namespace

std::string recipe_words(const std::string& recipe) {
  const Json parsed = parse_json(recipe);
  if (!parsed.is_object()) return recipe;
  const auto text = [&](const char* key) {
    const auto found = parsed.find(key);
    return found != parsed.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  std::string scorer = text("scorer");
  const std::string profile = text("profile");
  if (text("heads") != "table" || scorer.empty() || profile.empty()) return recipe;
  const auto least = parsed.find("min_entries");
  if (least != parsed.end() && *least != 0) scorer += "(min_entries=" + least->dump() + ")";
  if (const std::string encoding = text("encoding"); !encoding.empty()) scorer += ", " + encoding;
  if (profile.starts_with("table-")) return scorer + ", " + profile;
  // A segment has the digest of its profile.
  return scorer + ", table " + (profile.size() == kDigest ? profile.substr(0, kShortId) : profile);
}

std::string recipe_text(const msg::SegmentInfo& row) {
  std::string text = recipe_call(row.recipe, row.preset);
  if (text == row.recipe) {
    const std::string words = recipe_words(row.recipe);
    return words == row.recipe ? scorer_name(row.recipe) : words;
  }
  const std::string name = "profile=";
  const std::size_t digest = text.find(name);
  if (digest == std::string::npos) return text;
  const std::size_t begin = digest + name.size(), end = text.find_first_of(",)", begin);
  if (end - begin > kShortId) text.erase(begin + kShortId, end - begin - kShortId);
  return text;
}

std::string status_text(const msg::ServerStatus& s, const DiskUse& all) {
  Facts facts;
  facts.add("server", s.server);
  facts.add("up for", duration_text(s.uptime_seconds));
  facts.add("tenant", s.tenant);
  if (!s.data_dir.empty()) facts.add("data", s.data_dir);  // hidden from tenants
  facts.add("transport", s.transport);
  facts.add("rdma", or_dash(s.rdma));  // an older service does not report it
  facts.add("compression on", s.device);
  facts.add("models", count_text(s.models));
  std::string segments = count_text(s.segments);
  if (s.segments_out_of_service > 0) {
    segments += fmt::format(", {} of them out of service: see precisctl fsck",
                            count_text(s.segments_out_of_service));
  }
  facts.add("segments", segments);
  facts.add("sessions", count_text(s.sessions));
  facts.add("stored", stored_text(s, all));
  if (s.pinned_bytes > 0) {
    facts.add("pinned", bytes_text(s.pinned_bytes) +
                            (s.max_pinned_bytes == 0
                                 ? ""
                                 : fmt::format(" of at most {}", bytes_text(s.max_pinned_bytes))));
  }
  facts.add("memory", fmt::format("{} of {} ({})", bytes_text(s.memory_bytes),
                                  bytes_text(s.memory_limit_bytes),
                                  percent_text(s.memory_bytes, s.memory_limit_bytes)));
  const bool low = s.disk_low || s.disk_free_bytes < s.disk_min_free_bytes;
  facts.add(
      "disk",
      fmt::format("{} free, puts are refused below {}{}", bytes_text(s.disk_free_bytes),
                  bytes_text(s.disk_min_free_bytes),
                  low ? ". PUTS ARE BEING REFUSED: remove or trim prefixes (precisctl prefix rm, "
                        "prefix trim), or make room"
                      : ""));
  if (!s.disk_fault.empty()) facts.add("disk fault", s.disk_fault);
  if (!s.exposed.empty()) facts.add("exposed", s.exposed);
  return facts.text();
}

std::string models_text(std::span<const msg::ModelRow> rows, std::size_t columns) {
  if (rows.empty()) return "no models: a client's register_model() adds one\n";
  Table table({{"FINGERPRINT"},
               {"NAME", false, 0, 16},
               {"LAYERS", true, 3},
               {"Q HEADS", true, 6},
               {"KV HEADS", true, 5},
               {"HEAD DIM", true, 4},
               {"DTYPE", false, 2},
               {"KV/TOKEN", true, 1},
               {"W_O", false, 7},
               {"HITS", true, 1},
               {"SEGMENTS", true},
               {"STORED", true}});
  for (const msg::ModelRow& row : rows) {
    const ModelSpec& m = row.model;
    table.add({row.fingerprint.hex().substr(0, kShortId), m.name, std::to_string(m.num_layers),
               std::to_string(m.num_q_heads), std::to_string(m.num_kv_heads),
               std::to_string(m.head_dim), std::string(dtype_name(m.dtype)),
               bytes_text(m.token_bytes()), row.projections == m.num_layers ? "yes" : "no",
               count_text(row.hits), count_text(row.segments), bytes_text(row.stored_bytes)});
  }
  return table.text(columns);
}

std::string profiles_text(std::span<const msg::ProfileRow> rows,
                          std::span<const msg::ModelRow> models, std::size_t columns) {
  if (rows.empty()) return "no profiles: precis profile build makes one, profile add loads it\n";
  Table table({{"NAME", false, 0, 12},
               {"KIND"},
               {"MODEL", false, 0, 12},
               {"SCORER"},
               {"FITTED ON", true, 1},
               {"ADDED"}});
  for (const msg::ProfileRow& row : rows) {
    table.add({row.name, row.kind, model_name(row.model, models), scorer_name(row.scorer),
               fmt::format("{} tokens each", count_text(row.num_tokens)),
               when_text(row.added_unix_ms)});
  }
  return table.text(columns);
}

std::string profile_text(const msg::ProfileRow& row, std::span<const msg::ModelRow> models) {
  Facts facts;
  facts.add("name", row.name);
  facts.add("kind", row.kind);
  facts.add("model", model_name(row.model, models) + "  " + row.model.hex());
  facts.add("scorer", row.scorer);
  facts.add("digest", row.digest.hex());
  facts.add("fitted on", fmt::format("contexts of {} tokens, SHA-256 {}",
                                     count_text(row.num_tokens), or_dash(row.text_digest)));
  facts.add("added", when_text(row.added_unix_ms));
  return facts.text();
}

std::string segments_text(std::span<const msg::SegmentInfo> rows,
                          std::span<const msg::ModelRow> models, std::size_t columns) {
  if (rows.empty()) return "no prefixes are stored\n";
  Table table({{"ID"},
               {"PARENT", false, 6},
               {"MODEL", false, 1, 10},
               {"TOKENS", true},
               {"RECIPE", false, 2, 12},
               {"KEEP", true},
               {"STORED", true},
               {"OF", true, 5},
               {"HITS", true},
               {"PRIORITY", true, 7},
               {"TIER", false, 3},
               {"USED"},
               {"MADE", false, 4}});
  for (const msg::SegmentInfo& row : rows) {
    table.add({short_id(row.id), short_id(row.parent), model_name(row.model, models),
               fmt::format("{}..{}", row.begin, row.end), recipe_text(row),
               keep_text(stored_budget(row)), bytes_text(row.stored_bytes),
               bytes_text(row.original_bytes), count_text(row.hits), std::to_string(row.priority),
               tier_text(row), used_text(row), when_text(row.created_unix_ms)});
  }
  return table.text(columns);
}

std::string segment_text(const msg::SegmentInfo& row, std::span<const msg::ModelRow> models,
                         std::size_t columns) {
  Facts facts;
  facts.add("id", row.id.hex());
  facts.add("parent", row.parent.is_null() ? "none, it begins at the root" : row.parent.hex());
  facts.add("model", model_name(row.model, models));
  if (!row.adapter.empty()) facts.add("adapter", row.adapter);
  facts.add("tokens",
            fmt::format("{} [{}, {})", count_text(row.end - row.begin), row.begin, row.end));
  facts.add("recipe", recipe_text(row) + "  " + row.recipe);
  facts.add("keep", keep_text(row.budget));
  if (row.trimmed) facts.add("trimmed to", keep_text(row.trimmed));
  if (row.parent_read) facts.add("parent read at", keep_text(row.parent_read));
  facts.add("entries", count_text(row.entries));
  facts.add("original", bytes_text(row.original_bytes));
  facts.add("stored", fmt::format("{} ({})", bytes_text(row.stored_bytes),
                                  percent_text(row.stored_bytes, row.original_bytes)));
  facts.add("compressed in", duration_text(row.compress_seconds));
  if (row.prefill_seconds > 0) facts.add("prefill took", duration_text(row.prefill_seconds));
  facts.add("made", when_text(row.created_unix_ms));
  facts.add("hits", count_text(row.hits));
  facts.add("last used", used_text(row));
  facts.add("priority", std::to_string(row.priority));
  if (row.ttl_seconds > 0) {
    facts.add("ttl", duration_text(static_cast<double>(row.ttl_seconds)));
  }
  if (row.expected_unix_ms > 0) facts.add("expected until", when_text(row.expected_unix_ms));
  facts.add("children", count_text(row.children));
  facts.add("tier", row.out_of_service ? "damaged, or has a damaged ancestor: see precisctl fsck"
                                       : tier_text(row));
  std::string text = facts.text();
  if (row.plan) {
    text += "\nentries kept, by layer and head\n" + plan_text(*row.plan, columns) + "\n" +
            heatmap_text(*row.plan, row.end - row.begin, columns);
  }
  return text;
}

std::string sessions_text(std::span<const msg::SessionRow> rows, std::size_t columns) {
  if (rows.empty()) return "no sessions\n";
  Table table({{"NAME", false, 0, 16},
               {"TIP"},
               {"TOKENS", true},
               {"TURNS", true, 1},
               {"TOTAL", true},
               {"PINNED"},
               {"EXPIRES", false, 2},
               {"CHANGED"}});
  for (const msg::SessionRow& row : rows) {
    table.add({row.name, tip_text(row, kShortId), count_text(row.tip_end),
               std::to_string(row.turns), keep_text(row.total), row.pinned ? "yes" : "no",
               row.expires_unix_ms == 0 ? "never" : when_text(row.expires_unix_ms),
               when_text(row.updated_unix_ms)});
  }
  return table.text(columns);
}

std::string session_text(const msg::SessionRow& row, const std::string& takes) {
  Facts facts;
  facts.add("name", row.name);
  facts.add("tip", tip_text(row));
  facts.add("tokens", count_text(row.tip_end));
  facts.add("turns", std::to_string(row.turns));
  if (row.total) facts.add("total", keep_text(row.total));
  if (!takes.empty()) facts.add("takes", takes);
  facts.add("pinned", row.pinned ? "yes" : "no");
  facts.add("ttl",
            row.ttl_seconds == 0 ? "none" : duration_text(static_cast<double>(row.ttl_seconds)));
  facts.add("expires", row.expires_unix_ms == 0 ? "never" : when_text(row.expires_unix_ms));
  facts.add("changed", when_text(row.updated_unix_ms));
  return facts.text();
}

bool is_above(const Budget& keep, const Budget& limit) {
  if (keep.kind == Budget::Kind::kAll) return limit.kind != Budget::Kind::kAll;
  return keep.kind == limit.kind && keep.value > limit.value;
}

std::string budgets_text(const msg::Budgets& budgets, std::span<const ModelBudgets> models,
                         std::size_t columns) {
  Table table({{"SCOPE", false, 0, 16},
               {"RECIPE", false, 0, 12},
               {"KEEP", true},
               {"LIMIT", true},
               {"REVISION", true, 2},
               {"SET", false, 1}});
  const auto add = [&](const std::string& scope, const msg::BudgetRow& row,
                       const std::string& keep) {
    table.add({scope, or_dash(recipe_words(row.recipe)), keep, keep_text(row.limit),
               std::to_string(row.version), when_text(row.set_unix_ms)});
  };
  // A scope's keep may be above the limit of another scope.
  const auto add_in_force = [&](const std::string& scope, const msg::BudgetRow& row) {
    const bool is_limited = row.keep && row.limit && is_above(*row.keep, *row.limit);
    add(scope, row,
        keep_text(row.keep) + (is_limited ? ", limited to " + keep_text(row.limit) : ""));
  };
  for (const msg::BudgetRow& row : budgets.layers) add(row.scope, row, keep_text(row.keep));
  add_in_force("in force", budgets.effective);
  for (const ModelBudgets& each : models) {
    add_in_force("in force for " + each.model.model.name, each.budgets.effective);
  }
  for (const msg::BudgetRow& row : budgets.sessions) add(row.scope, row, keep_text(row.keep));
  return table.text(columns);
}

std::string stats_text(const msg::Stats& stats, std::size_t columns) {
  Table table({{"NAME"}, {"VALUE", true}, {"MEANING", false, 0, 20}});
  for (const msg::Stat& row : stats.rows) {
    const bool bytes = row.name.find("_bytes") != std::string::npos;
    const bool whole = row.value >= 0 && row.value < 9e15 &&
                       row.value == static_cast<double>(static_cast<std::uint64_t>(row.value));
    const auto count = static_cast<std::uint64_t>(whole ? row.value : 0);
    table.add({row.name,
               !whole  ? fmt::format("{:.6g}", row.value)
               : bytes ? bytes_text(count)
                       : count_text(count),
               row.help});
  }
  return table.text(columns);
}

}  // namespace precis::cli
