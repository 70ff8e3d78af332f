#include "tests/fuzz/targets.h"

#include <algorithm>

namespace precis::fuzz {

std::span<const Target> targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> joined;
    for (const auto& group : {message_targets(), row_targets(), record_targets(), store_targets(),
                              catalog_targets(), backup_targets(), transport_targets(),
                              cluster_targets(), log_targets(), text_targets()}) {
      joined.insert(joined.end(), group.begin(), group.end());
    }
    return joined;
  }();
  return all;
}

const Target* find_target(std::string_view name) {
  const auto found = std::ranges::find(targets(), name, &Target::name);
  return found == targets().end() ? nullptr : &*found;
}

}  // namespace precis::fuzz
