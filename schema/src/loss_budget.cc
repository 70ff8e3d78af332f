#include "precis/loss_budget.h"

#include <algorithm>
#include <ranges>

namespace precis {
namespace {

constexpr const char* kHowToMeasure =
    ": build one with 'precis profile build', measure it with 'precis profile measure', and add it "
    "with 'precisctl profile add'; or keep a share such as '20% bytes'";

// The length of the measured contexts that tell about one of `num_tokens`.
std::uint32_t measured_tokens(const Profile& profile, std::uint32_t num_tokens) {
  for (const Profile::Loss& loss : profile.losses) {  // rising
    if (loss.tokens >= num_tokens) return loss.tokens;
  }
  return profile.losses.back().tokens;
}

}  // namespace

std::string measured_recipe(const Recipe& recipe) {
  Recipe measured = recipe;
  measured.preset.clear();
  measured.profile.clear();
  measured.min_entries = 0;
  return canonical_recipe(measured);
}

Result<Budget> budget_for_loss(const Budget& asked, const Recipe& recipe, const Profile* profile,
                               std::uint32_t num_tokens) {
  if (asked.kind != Budget::Kind::kLoss) return asked;
  const std::string keep = "keep '" + asked.to_string() + "' ";
  if (profile == nullptr) {
    return Status::invalid(keep + "needs a recipe with a profile" + kHowToMeasure);
  }
  if (profile->losses.empty()) {
    return Status::invalid(keep + "needs measured losses, and profile '" + profile->name +
                           "' has none" + kHowToMeasure);
  }
  if (const std::string own = measured_recipe(recipe); own != profile->losses_recipe) {
    return Status::invalid(keep + "needs losses of recipe '" + own + "', and those of profile '" +
                           profile->name + "' are of '" + profile->losses_recipe +
                           "': name that recipe, or measure the profile with yours");
  }
  const std::uint32_t tokens = measured_tokens(*profile, num_tokens);
  const double most = static_cast<double>(asked.value) / 1e6;
  Budget found = Budget::all();
  for (const Profile::Loss& loss : std::views::reverse(profile->losses)) {  // the largest first
    if (loss.tokens != tokens) continue;
    if (double{loss.mean} + double{loss.error} > most) break;
    found = Budget::ratio_ppm(loss.keep_ppm);
  }
  return found;
}

}  // namespace precis
