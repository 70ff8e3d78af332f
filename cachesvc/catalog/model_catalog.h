// The part of the catalog that holds what puts need to know of a model: its shape, its output
// projections and its profiles. Callers include catalog.h, which says what holds for all methods.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "precis/catalog_row.h"
#include "precis/messages.h"
#include "precis/profile.h"

namespace precis {

// The prefix of the names of profiles that the service makes from tables of budgets. Only recipes
// that name such a profile use it.
inline constexpr std::string_view kTableProfile = "table-";

class ModelCatalog {
 public:
  virtual ~ModelCatalog() = default;

  // ---- models
  // [blocking] Registering an equal spec again is OK. kInvalidArgument for a spec that is not
  // valid; kRejected if the tenant has too many models.
  virtual Result<msg::ModelRow> register_model(std::string_view tenant, const ModelSpec& model) = 0;
  virtual Result<ModelSpec> model(std::string_view tenant, const Digest& fingerprint) const = 0;
  // Returns a page of the models, by fingerprint. kInvalidArgument if `after` is not the end of a
  // page.
  virtual Result<msg::Models> models_page(std::string_view tenant,
                                          const msg::ListModels&) const = 0;
  // [blocking] Removes a model with its projections, profiles and budgets. kConflict, with the
  // number, while segments of it are stored. A put in progress then fails at its commit.
  // `only_check`: only returns that error.
  virtual Status remove_model(std::string_view tenant, const Digest& fingerprint,
                              bool only_check = false) = 0;

  // ---- output projections, one per layer of a model, immutable
  using Projection = std::shared_ptr<const StoredProjection>;
  enum class ProjectionPart { kWeights, kGrams };
  // [blocking] If nodes share a storage, writes the bytes to it. Call it before add_projection(),
  // whose errors it has.
  virtual Status share_projection(const StoredProjection& row, Bytes weights, Bytes grams) = 0;
  // [blocking] Stores a layer's weights and their Gram matrices. Storing the same weights again is
  // OK and replaces damaged bytes. kInvalidArgument if other weights are stored; kNotFound if the
  // model is not registered. If nodes share a storage, the row is a setting, and kRejected means
  // that the tenant has too many.
  virtual Status add_projection(const StoredProjection& row, Bytes weights, Bytes grams) = 0;
  // kNotFound if the layer has none.
  virtual Result<Projection> projection(std::string_view tenant, const Digest& model,
                                        std::uint32_t layer) const = 0;
  // [blocking] Reads a part into `into`, which has the part's size. kCorruption if the bytes are
  // not the stored ones.
  virtual Status read_projection(const StoredProjection& row, ProjectionPart part,
                                 MutableBytes into) = 0;

  // ---- profiles, by model and name
  // [blocking] Adds a profile, or replaces the model's profile of the same name. kInvalidArgument
  // or kVersionMismatch for the JSON, kNotFound if its model is not registered, kRejected if the
  // tenant has too many profiles.
  virtual Result<msg::ProfileRow> add_profile(std::string_view tenant, std::string_view json) = 0;
  // Whether it could be added: the errors of add_profile().
  virtual Status check_profile(std::string_view tenant, const Profile& profile) const = 0;
  virtual std::vector<msg::ProfileRow> profiles(std::string_view tenant,
                                                std::optional<Digest> model) const = 0;
  // [blocking] Returns the profile with its JSON, as it was added.
  virtual Result<msg::ProfileRow> profile(std::string_view tenant, const Digest& model,
                                          std::string_view name) = 0;
  // [blocking] kConflict while a budget sets a recipe that no other profile fits.
  virtual Status remove_profile(std::string_view tenant, const Digest& model,
                                std::string_view name) = 0;
  // Returns the profile that `recipe` names, by name or digest. If the recipe names none, returns
  // the newest profile that was built for this model and the recipe's scores, but none of a table.
  // kInvalidArgument if the named profile does not fit them, kNotFound if there is none.
  struct FoundProfile {
    std::shared_ptr<const Profile> profile;  // shared: readers outlive a removal
    Digest digest;
  };
  virtual Result<FoundProfile> find_profile(std::string_view tenant, const Digest& model,
                                            const Recipe& recipe) const = 0;
};

}  // namespace precis
