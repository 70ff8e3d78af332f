// Profiles: kept with their model, found for a recipe.
#include <algorithm>

#include "cachesvc/base/counted.h"
#include "cachesvc/catalog/catalog_impl.h"
#include "cachesvc/catalog/catalog_keys.h"
#include "precis/limits.h"

namespace precis {
namespace {

Status none_such(std::string_view name, const std::string& model) {
  return Status::not_found("model '" + model + "' has no profile '" + std::string(name) +
                           "'; precisctl profile ls lists what there is");
}

}  // namespace

msg::ProfileRow CatalogImpl::describe(const KnownProfile& known) {
  const Profile& profile = *known.profile;
  return {profile.name,
          profile.kind == Profile::Kind::kCurves ? "curves" : "weights",
          profile.model,
          profile.scorer,
          known.digest,
          profile.num_tokens,
          profile.text_digest,
          known.added_unix_ms,
          {}};
}

Result<msg::ProfileRow> CatalogImpl::add_profile(std::string_view tenant, std::string_view json) {
  PRECIS_ASSIGN(Profile profile, parse_profile(json));
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const Model* const model, known_model(tenant, profile.model));
  const ModelSpec& spec = model->spec;
  if (profile.num_layers != spec.num_layers || profile.num_kv_heads != spec.num_kv_heads) {
    return Status::invalid("the profile is of " + counted(profile.num_layers, "layer") + " with " +
                           counted(profile.num_kv_heads, "KV head") + ", model '" + spec.name +
                           "' has " + std::to_string(spec.num_layers) + " with " +
                           std::to_string(spec.num_kv_heads));
  }
  std::size_t count = 0;
  const auto [first, last] = models_of(tenant);
  for (auto m = first; m != last; ++m) count += m->second.profiles.size();
  if (!model->profiles.contains(profile.name) && count >= limits::kProfilesPerTenantMax) {
    return Status::rejected("tenant '" + std::string(tenant) + "' has its " +
                            std::to_string(count) + " profiles; remove one first");
  }
  KnownProfile known{nullptr, profile_digest(profile), clock_.unix_ms()};
  Change change;
  change.put(Table::kProfiles, profile_key(tenant, profile.model, profile.name),
             encode(StoredProfile{std::string(tenant), std::string(json), known.added_unix_ms}));
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  known.profile = std::make_shared<const Profile>(std::move(profile));
  std::unique_lock lock(state_);
  const Profile& added = *known.profile;
  Model& holder = models_.at({std::string(tenant), added.model});
  return describe(holder.profiles[added.name] = std::move(known));
}

std::vector<msg::ProfileRow> CatalogImpl::profiles(std::string_view tenant,
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

Result<msg::ProfileRow> CatalogImpl::profile(std::string_view tenant, const Digest& model,
                                             std::string_view name) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const Model* const holder, known_model(tenant, model));
  const auto found = holder->profiles.find(name);
  if (found == holder->profiles.end()) return none_such(name, holder->spec.name);
  msg::ProfileRow row = describe(found->second);
  row.json = profile_json(*found->second.profile);
  return row;
}

Status CatalogImpl::remove_profile(std::string_view tenant, const Digest& model,
                                   std::string_view name) {
  std::lock_guard changing(changes_);
  PRECIS_ASSIGN(const Model* const holder, known_model(tenant, model));
  if (!holder->profiles.contains(name)) return none_such(name, holder->spec.name);
  Change change;
  change.erase(Table::kProfiles, profile_key(tenant, model, name));
  PRECIS_TRY(write(std::move(change), Durability::kWal));
  std::unique_lock lock(state_);
  auto& profiles = models_.at({std::string(tenant), model}).profiles;
  profiles.erase(profiles.find(name));
  return {};
}

Result<Catalog::FoundProfile> CatalogImpl::find_profile(std::string_view tenant,
                                                        const Digest& model,
                                                        const Recipe& recipe) const {
  std::shared_lock lock(state_);
  PRECIS_ASSIGN(const Model* const holder, known_model(tenant, model));
  return fitting_profile(*holder, model, recipe);
}

Result<Catalog::FoundProfile> CatalogImpl::fitting_profile(const Model& holder, const Digest& model,
                                                           const Recipe& recipe) {
  if (!recipe.profile.empty()) {
    const auto named = [&](const auto& entry) {
      return entry.first == recipe.profile || entry.second.digest.hex() == recipe.profile;
    };
    const auto found = std::find_if(holder.profiles.begin(), holder.profiles.end(), named);
    if (found == holder.profiles.end()) return none_such(recipe.profile, holder.spec.name);
    PRECIS_TRY(check_profile(*found->second.profile, recipe, model));
    return FoundProfile{found->second.profile, found->second.digest};
  }
  const KnownProfile* newest = nullptr;
  for (const auto& [name, known] : holder.profiles) {
    if (!check_profile(*known.profile, recipe, model).ok()) continue;
    if (!newest || known.added_unix_ms >= newest->added_unix_ms) newest = &known;
  }
  if (!newest) {
    // As people write it, where it was written so.
    const std::string call = recipe_call(canonical_recipe(recipe), recipe.preset);
    return Status::not_found("model '" + holder.spec.name + "' has no profile over the scores of " +
                             call + "; build one (precis profile build --recipe '" + call +
                             "' --out FILE) and add it (precisctl profile add FILE)");
  }
  return FoundProfile{newest->profile, newest->digest};
}

}  // namespace precis
