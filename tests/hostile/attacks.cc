#include "tests/hostile/attacks.h"

namespace precis::hostile {

const std::vector<Attack>& attacks() {
  static const std::vector<Attack> all{};
  return all;
}

}  // namespace precis::hostile
