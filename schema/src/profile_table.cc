// The tables of profiles, for code that reads no JSON.
#include "precis/profile.h"
#include "recipe_words.h"

namespace precis {

std::string_view table_kind_name(TableKind kind) { return word_of(kTableWords, kind); }

std::vector<float> probe_of_layer(const Profile& profile, std::uint32_t layer) {
  std::vector<float> probe;
  probe.reserve(std::size_t{profile.num_kv_heads} * profile.rows());
  for (std::uint32_t head = 0; head < profile.num_kv_heads; ++head) {
    for (std::uint32_t row = 0; row < profile.rows(); ++row) {
      probe.push_back(profile.at(row, layer, head));
    }
  }
  return probe;
}

Status check_profile_shape(const Profile& profile, const ModelSpec& model) {
  const auto sizes = [](std::uint32_t layers, std::uint32_t heads) {
    return std::to_string(layers) + " layers with " + std::to_string(heads) + " KV heads";
  };
  if (profile.num_layers != model.num_layers || profile.num_kv_heads != model.num_kv_heads) {
    return Status::invalid("profile " + profile.name + " is of " +
                           sizes(profile.num_layers, profile.num_kv_heads) + ", model '" +
                           model.name + "' has " + sizes(model.num_layers, model.num_kv_heads));
  }
  const bool is_probe = profile.kind == TableKind::kProbe;
  if (!is_probe || profile.rows() == ProbeRows{model.head_dim}.count()) return {};
  return Status::invalid("profile " + profile.name + " is of heads with " +
                         std::to_string((profile.rows() - ProbeRows{0}.count()) / 3) +
                         " channels, model '" + model.name + "' has " +
                         std::to_string(model.head_dim));
}

}  // namespace precis
