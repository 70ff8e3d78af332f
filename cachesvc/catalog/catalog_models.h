// Models, and profiles. Private to this folder.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "cachesvc/catalog/catalog_state.h"

namespace precis {

class CatalogModels : public virtual CatalogState {
 public:
  Result<msg::ModelRow> register_model(std::string_view tenant, const ModelSpec& model) override;
  Result<ModelSpec> model(std::string_view tenant, const Digest& fingerprint) const override;
  Result<msg::Models> models_page(std::string_view tenant, const msg::ListModels&) const override;
  Status remove_model(std::string_view tenant, const Digest& fingerprint, bool only_check) override;

 private:
  msg::ModelRow describe(const ModelKey& key, const Model& model) const;
  Result<const Model*> unused_model(const ModelKey& key) const;
  static std::vector<SettingRow> rows_of(const ModelKey& key, const Model& model);
};

// Profiles: storing them with their model, and finding the one for a recipe.
class CatalogProfiles : public virtual CatalogState {
 public:
  Result<msg::ProfileRow> add_profile(std::string_view tenant, std::string_view json) override;
  Status check_profile(std::string_view tenant, const Profile& profile) const override;
  std::vector<msg::ProfileRow> profiles(std::string_view tenant,
                                        std::optional<Digest> model) const override;
  Result<msg::ProfileRow> profile(std::string_view tenant, const Digest& model,
                                  std::string_view name) override;
  Status remove_profile(std::string_view tenant, const Digest& model,
                        std::string_view name) override;
  Result<FoundProfile> find_profile(std::string_view tenant, const Digest& model,
                                    const Recipe& recipe) const override;
  static Result<FoundProfile> fitting_profile(const Model& holder, const Digest& model,
                                              const Recipe& recipe);  // as find_profile()

 private:
  static msg::ProfileRow describe(const KnownProfile& known);
  Status check_fits(std::string_view tenant, const Profile& profile) const;
  Status check_agreed_room(std::string_view tenant, const Profile& profile,
                           std::size_t bytes) const;
  Status check_unused(std::string_view tenant, const Digest& model, std::string_view name) const;
  Result<std::optional<msg::ProfileRow>> profile_with_text(std::string_view tenant,
                                                           const Digest& model,
                                                           std::string_view name);
};

}  // namespace precis
