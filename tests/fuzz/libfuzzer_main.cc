// One libFuzzer binary per target; PRECIS_FUZZ_TARGET names it. Seeds: fuzz_seeds DIR.
#include <cstddef>
#include <cstdint>

#include "precis/status.h"
#include "tests/fuzz/decode_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const precis::fuzz::Target* const target = precis::fuzz::find_target(PRECIS_FUZZ_TARGET);
  PRECIS_CHECK(target != nullptr);
  target->run(std::as_bytes(std::span(data, size)));
  return 0;
}
