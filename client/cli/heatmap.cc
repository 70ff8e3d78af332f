#include "client/cli/heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/png.h"
#include "client/cli/table.h"

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

// The palette of a picture: a share of 0% to 100%, then what is not a share.
constexpr std::uint8_t kShareMax = 100, kWhite = 101, kBlack = 102;

// From a light gray to a dark blue, so that a print in gray can be read too.
std::vector<Color> palette() {
  constexpr std::array<double, 3> kLightest = {233, 236, 239}, kDarkest = {8, 48, 107};
  std::vector<Color> colors;
  for (int share = 0; share <= kShareMax; ++share) {
    Color color;
    for (std::size_t c = 0; c < color.size(); ++c) {
      color[c] = static_cast<std::uint8_t>(kLightest[c] +
                                           (kDarkest[c] - kLightest[c]) * share / kShareMax);
    }
    colors.push_back(color);
  }
  colors.push_back({255, 255, 255});
  colors.push_back({0, 0, 0});
  return colors;
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

std::string plan_text(const Plan& plan, std::size_t columns) {
  std::vector<Column> named{{"LAYER", true}};
  for (std::uint32_t h = 0; h < plan.num_kv_heads; ++h) {
    named.push_back({"H" + std::to_string(h), true, static_cast<int>(h) + 1});
  }
  named.push_back({"ALL", true});
  Table table(std::move(named));
  for (std::uint32_t l = 0; l < plan.num_layers; ++l) {
    std::vector<std::string> cells{std::to_string(l)};
    std::uint64_t sum = 0;
    for (std::uint32_t h = 0; h < plan.num_kv_heads; ++h) {
      cells.push_back(std::to_string(plan.at(l, h)));
      sum += plan.at(l, h);
    }
    cells.push_back(std::to_string(sum));
    table.add(std::move(cells));
  }
  return table.text(columns);
}

std::string heatmap_png(const Plan& plan, std::uint32_t tokens) {
  constexpr std::uint32_t kSquare = 10, kGap = 1, kMarginX = 24, kMarginY = 16, kScale = 101;
  constexpr std::uint32_t kNumbered = 4;  // every fourth layer and head has its number
  const std::uint32_t right = kMarginX + plan.num_kv_heads * kSquare;
  const std::uint32_t below = kMarginY + plan.num_layers * kSquare;
  Picture picture(std::max(right, kMarginX + kScale) + kMarginX, below + 3 * kMarginY, palette());
  picture.fill(0, 0, picture.width, picture.height, kWhite);
  for (std::uint32_t head = 0; head < plan.num_kv_heads; head += kNumbered) {
    picture.write(kMarginX + head * kSquare + 1, kMarginY - 8, std::to_string(head), kBlack);
  }
  for (std::uint32_t layer = 0; layer < plan.num_layers; ++layer) {
    const std::uint32_t y = kMarginY + layer * kSquare;
    if (layer % kNumbered == 0) picture.write(4, y + 2, std::to_string(layer), kBlack);
    for (std::uint32_t head = 0; head < plan.num_kv_heads; ++head) {
      const std::uint64_t share = std::uint64_t{kShareMax} * plan.at(layer, head) / tokens;
      picture.fill(kMarginX + head * kSquare, y, kSquare - kGap, kSquare - kGap,
                   static_cast<std::uint8_t>(std::min<std::uint64_t>(share, kShareMax)));
    }
  }
  const std::uint32_t scale = below + kMarginY;
  for (std::uint32_t share = 0; share < kScale; ++share) {
    picture.fill(kMarginX + share, scale, 1, kSquare, static_cast<std::uint8_t>(share));
  }
  picture.write(kMarginX, scale + kSquare + 3, "0%", kBlack);
  picture.write(kMarginX + kScale - 15, scale + kSquare + 3, "100%", kBlack);
  return png(picture);
}

}  // namespace precis::cli
