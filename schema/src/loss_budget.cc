#include "precis/loss_budget.h"

#include <cmath>
#include <ranges>

#include "scorers.h"

namespace precis {
namespace {

constexpr const char* kHowToMeasure =
    ": build one with 'precis profile build', measure it with 'precis profile measure', and add it "
    "with 'precisctl profile add'; or keep a share such as '20% bytes'";

std::int64_t millionths(double x) { return std::llround(x * 1e6); }

// Shorter than the canonical form, for messages.
std::string text_of(const std::string& canonical) {
  const auto recipe = parse_recipe(canonical);
  if (!recipe.ok()) return canonical;
  const std::string scorer(traits_of(recipe->scorer).word);
  const std::string one = recipe_call(canonical, scorer);
  const std::string all_heads = recipe_call(canonical, "global_" + scorer);
  return all_heads.size() < one.size() ? all_heads : one;
}

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
    return Status::invalid(keep + "needs losses of recipe " + text_of(own) +
                           ", and those of profile '" + profile->name + "' are of " +
                           text_of(profile->losses_recipe) +
                           ": name that recipe, or measure the profile with yours");
  }
  const std::uint32_t tokens = measured_tokens(*profile, num_tokens);
  const auto most = static_cast<std::int64_t>(asked.value);
  Budget found = Budget::all();
  for (const Profile::Loss& loss : std::views::reverse(profile->losses)) {  // the largest first
    if (loss.tokens != tokens) continue;
    if (millionths(loss.mean) > most) break;
    if (millionths(double{loss.mean} + double{loss.error}) > most) continue;
    found = Budget::ratio_ppm(loss.keep_ppm);
  }
  return found;
}

}  // namespace precis
