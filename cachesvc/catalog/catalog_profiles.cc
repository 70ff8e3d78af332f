#include <algorithm>
#include <optional>

#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "precis/limits.h"

namespace precis {
namespace {

// Limit on the numbers in the tables of all profiles of a tenant. A number takes 4 bytes, so the
// tables take at most 8 * limits::kProfileBytesMax of memory.
constexpr std::size_t kTenantNumbersMax = 2 * limits::kProfileBytesMax;
// Limit on the texts of all profiles of a tenant in a cluster, because etcd stores them.
constexpr std::size_t kAgreedTextsMax = 4 * limits::kProfileBytesMax;

Status none_such(std::string_view name, const std::string& model) {
  return Status::not_found("model '" + model + "' has no profile '" + std::string(name) +
                           "'; precisctl profile ls lists the profiles");
}

}  // namespace

msg::ProfileRow CatalogProfiles::describe(const KnownProfile& known) {
  const Profile& profile = *known.profile;
  return {profile.name,
          std::string(table_kind_name(profile.kind)),
          profile.model,
          profile.scorer,
          known.digest,
          profile.num_tokens,
          profile.text_digest,
          known.added_unix_ms,
          {}};
}

// Whether it fits its model, and the limits on the number of profiles and the memory of their
// tables. The caller holds a lock.
Status CatalogProfiles::check_fits(std::string_view tenant, const Profile& profile) const {
  PRECIS_ASSIGN(const Model* const model, known_model(tenant, profile.model));
  PRECIS_TRY(check_profile_shape(profile, model->spec));
  std::size_t count = 1, numbers = profile.table.size();
  const auto [first, last] = models_of(tenant);
  for (auto m = first; m != last; ++m) {
    for (const auto& [name, known] : m->second.profiles) {
      if (m->first.second == profile.model && name == profile.name) continue;  // it is replaced
      ++count;
      numbers += known.profile->table.size();
    }
  }
  if (count > limits::kProfilesPerTenantMax) {
    return Status::rejected("tenant '" + std::string(tenant) + "' has " +
                            std::to_string(count - 1) +
                            " profiles, which is the limit; remove one first");
  }
  if (numbers > kTenantNumbersMax) {
    return Status::rejected("the tables of tenant '" + std::string(tenant) + "' would have " +
                            std::to_string(numbers) + " numbers, at most " +
                            std::to_string(kTenantNumbersMax) +
                            " are kept; remove a profile first");
  }
  return {};
}

Status CatalogProfiles::check_agreed_room(std::string_view tenant, const Profile& profile,
                                          std::size_t bytes) const {
  const auto [first, last] = models_of(tenant);
  for (auto m = first; m != last; ++m) {
    for (const auto& [name, known] : m->second.profiles) {
      if (m->first.second != profile.model || name != profile.name) bytes += known.bytes;
    }
  }
  if (bytes <= kAgreedTextsMax) return {};
  return Status::rejected("the profiles of tenant '" + std::string(tenant) + "' would have " +
                          std::to_string(bytes) +
                          " B, and those of a tenant of a cluster have at "
                          "most " +
                          std::to_string(kAgreedTextsMax) + "; remove one first");
}

Status CatalogProfiles::check_profile(std::string_view tenant, const Profile& profile) const {
  std::shared_lock lock(state_);
  return check_fits(tenant, profile);
}

Result<msg::ProfileRow> CatalogProfiles::add_profile(std::string_view tenant,
                                                     std::string_view json) {
  PRECIS_ASSIGN(Profile parsed, parse_profile(json));
  KnownProfile known{nullptr, profile_digest(parsed)};
  known.profile = std::make_shared<const Profile>(std::move(parsed));
  const Profile& profile = *known.profile;
  known.bytes = json.size();
  PRECIS_TRY(change_settings([&]() -> Result<std::vector<SettingRow>> {
    PRECIS_TRY(check_fits(tenant, profile));
    if (agree_) PRECIS_TRY(check_agreed_room(tenant, profile, json.size()));
    PRECIS_ASSIGN(const Model* const model, known_model(tenant, profile.model));
    known.added_unix_ms = clock_.unix_ms();
    // The time distinguishes a profile from the one it replaces, so it must be later.
    if (const auto before = model->profiles.find(profile.name); before != model->profiles.end()) {
      known.added_unix_ms = std::max(known.added_unix_ms, before->second.added_unix_ms + 1);
    }
    std::vector<SettingRow> rows;
    rows.push_back(
        {Table::kProfiles, profile_key(tenant, profile.model, profile.name),
         encode(StoredProfile{std::string(tenant), std::string(json), known.added_unix_ms}),
         known.profile});
    return rows;
  }));
  return describe(known);
}

std::vector<msg::ProfileRow> CatalogProfiles::profiles(std::string_view tenant,
                                                       std::optional<Digest> model) const {
  std::shared_lock lock(state_);
  std::vector<msg::ProfileRow> rows;
  const auto [first, last] = models_of(tenant);
  for (auto m = first; m != last; ++m) {
    if (model && m->first.second != *model) continue;
    for (const auto& [name, known] : m->second.profiles) rows.push_back(describe(known));
  }
  return rows;
}

// Memory holds only the table, so the text is read from the store, as it was added. During a change
// the store may be newer than memory; the second try holds changes_, so that both agree.
Result<msg::ProfileRow> CatalogProfiles::profile(std::string_view tenant, const Digest& model,
                                                 std::string_view name) {
  PRECIS_ASSIGN(const auto row, profile_with_text(tenant, model, name));
  if (row) return *row;
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const auto still, profile_with_text(tenant, model, name));
  if (still) return *still;
  return Status::corruption("the text of profile '" + std::string(name) + "' is missing");
}

// Returns none if store and memory differ.
Result<std::optional<msg::ProfileRow>> CatalogProfiles::profile_with_text(std::string_view tenant,
                                                                          const Digest& model,
                                                                          std::string_view name) {
  std::optional<msg::ProfileRow> row;
  {
    std::shared_lock lock(state_);
    PRECIS_ASSIGN(const Model* const holder, known_model(tenant, model));
    const auto found = holder->profiles.find(name);
    if (found == holder->profiles.end()) return none_such(name, holder->spec.name);
    row = describe(found->second);
  }
  const auto bytes = store_.get(Table::kProfiles, profile_key(tenant, model, name));
  if (bytes.status().code() == StatusCode::kNotFound) return std::optional<msg::ProfileRow>();
  PRECIS_TRY(bytes.status());
  PRECIS_ASSIGN(StoredProfile stored, decode_stored_profile(*bytes));
  if (stored.added_unix_ms != row->added_unix_ms) return std::optional<msg::ProfileRow>();
  row->json = std::move(stored.json);
  return row;
}

// Refuses to remove the last profile that fits a recipe which a budget sets: each put that names no
// recipe would fail.
Status CatalogProfiles::check_unused(std::string_view tenant, const Digest& model,
                                     std::string_view name) const {
  Model without = models_.at({std::string(tenant), model});
  without.profiles.erase(without.profiles.find(name));
  for (const StoredBudget& row : budgets_.rows(tenant)) {
    if (row.recipe.empty()) continue;
    const auto of = row.session.empty() ? row.model : model_of(tenant, row.session);
    const auto recipe = parse_recipe(row.recipe);
    if (of != model || !recipe.ok() || !recipe->needs_profile()) continue;
    const bool fits_now =
        fitting_profile(models_.at({std::string(tenant), model}), model, *recipe).ok();
    if (!fits_now || fitting_profile(without, model, *recipe).ok()) continue;
    const std::string scope =
        row.session.empty() ? "model '" + without.spec.name + "'" : "session '" + row.session + "'";
    return Status::conflict("recipe '" + row.recipe + "', which is set for " + scope +
                            ", needs profile '" + std::string(name) +
                            "'; set another recipe there first");
  }
  return {};
}

Status CatalogProfiles::remove_profile(std::string_view tenant, const Digest& model,
                                       std::string_view name) {
  return change_settings([&]() -> Result<std::vector<SettingRow>> {
    PRECIS_ASSIGN(const Model* const holder, known_model(tenant, model));
    if (!holder->profiles.contains(name)) return none_such(name, holder->spec.name);
    PRECIS_TRY(check_unused(tenant, model, name));
    std::vector<SettingRow> rows;
    rows.push_back({Table::kProfiles, profile_key(tenant, model, name), std::nullopt});
    return rows;
  });
}

Result<Catalog::FoundProfile> CatalogProfiles::find_profile(std::string_view tenant,
                                                            const Digest& model,
                                                            const Recipe& recipe) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const Model* const holder, known_model(tenant, model));
  return fitting_profile(*holder, model, recipe);
}

Result<Catalog::FoundProfile> CatalogProfiles::fitting_profile(const Model& holder,
                                                               const Digest& model,
                                                               const Recipe& recipe) {
  if (!recipe.profile.empty()) {
    const auto named = [&](const auto& entry) {
      return entry.first == recipe.profile || entry.second.digest.hex() == recipe.profile;
    };
    const auto found = std::find_if(holder.profiles.begin(), holder.profiles.end(), named);
    if (found == holder.profiles.end()) return none_such(recipe.profile, holder.spec.name);
    PRECIS_TRY(precis::check_profile(*found->second.profile, recipe, model));
    return FoundProfile{found->second.profile, found->second.digest};
  }
  const KnownProfile* newest = nullptr;
  for (const auto& [name, known] : holder.profiles) {
    if (name.starts_with(kTableProfile)) continue;
    if (!precis::check_profile(*known.profile, recipe, model).ok()) continue;
    if (!newest || known.added_unix_ms >= newest->added_unix_ms) newest = &known;
  }
  if (!newest) {
    // In the form that users write, with the preset if the recipe named one.
    const std::string call = recipe_call(canonical_recipe(recipe), recipe.preset);
    return Status::not_found("model '" + holder.spec.name + "' has no profile over the scores of " +
                             call + "; build one (precis profile build --recipe '" + call +
                             "' --out FILE) and add it (precisctl profile add FILE)");
  }
  return FoundProfile{newest->profile, newest->digest};
}

}  // namespace precis
