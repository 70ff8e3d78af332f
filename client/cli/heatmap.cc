#include "client/cli/heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace precis::cli {
namespace {

// Shades for shares up to 10%, 20%, 40%, 70% and 100%.
struct Shade {
  double up_to;
  std::string_view text;
};
constexpr std::array kShades = {Shade{0.1, "· "}, Shade{0.2, "░░"}, Shade{0.4, "▒▒"},
                                Shade{0.7, "▓▓"}, Shade{1.0, "██"}};
constexpr std::size_t kMargin = 16;  // the layer's number and its mean

std::string_view shade_of(double share) {
  for (const Shade& shade : kShades) {
    if (share <= shade.up_to) return shade.text;
  }
  return kShades.back().text;
}

}  // namespace

std::string heatmap_text(const Plan& plan, std::uint32_t tokens, std::size_t columns) {
  const std::size_t fit =
      columns == 0 ? plan.num_kv_heads : (std::max(columns, kMargin + 2) - kMargin) / 2;
  const std::uint32_t shown =
      static_cast<std::uint32_t>(std::min<std::size_t>(fit, plan.num_kv_heads));
  std::string text = "layer   mean  KV heads\n";
  for (std::uint32_t layer = 0; layer < plan.num_layers; ++layer) {
    std::uint64_t sum = 0;
    for (std::uint32_t h = 0; h < plan.num_kv_heads; ++h) sum += plan.at(layer, h);
    const double mean =
        static_cast<double>(sum) / (static_cast<double>(plan.num_kv_heads) * tokens);
    text += fmt::format("{:5}  {:4.0f}%  ", layer, mean * 100);
    for (std::uint32_t h = 0; h < shown; ++h) {
      text += shade_of(static_cast<double>(plan.at(layer, h)) / tokens);
    }
    text += '\n';
  }
  if (shown < plan.num_kv_heads) {
    text += fmt::format("{} more heads do not fit\n", plan.num_kv_heads - shown);
  }
  return text +
         "share of a head's tokens:  ·  to 10%   ░░ to 20%   ▒▒ to 40%   ▓▓ to 70%   ██ above\n";
}

}  // namespace precis::cli
